"""Proximal policy optimisation (Schulman et al. 2017), as a package that is not this project's.

    seed train cartpole-vtrace --agent tests.packages.ppo:PPO

Clipped surrogate, generalised advantage estimation (Schulman et al. 2016), several epochs over
each batch in minibatches. It touches no file of the project: it brings its config, its network,
its experience and its loss.
"""

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput, Agent, LossOutput
from learner.algos import distributions, losses
from learner.config.agent_config import AgentConfig
from learner.config.run_config import NetworkConfig
from learner.experience.base import Experience, ExperienceContext, Sample
from learner.experience.unroll_queue import UnrollQueue
from learner.networks.actor_critic import ActorCritic
from learner.records import (
    Batch,
    Completed,
    State,
    Unrolls,
    index_unrolls,
    select_unrolls,
    transitions,
)
from seed.errors import require
from seed.specs import EnvSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class PPOConfig(AgentConfig):
    """Proximal policy optimisation."""

    unroll_length: int = 32
    """T: transitions in an unroll."""
    batch_size: int = 8
    """Unrolls in one minibatch, which is one learner step."""
    num_minibatches: int = 4
    """Minibatches into which the unrolls that were collected together are split."""
    num_epochs: int = 4
    """Epochs over the unrolls that were collected together."""
    discount_factor: float = 0.99
    gae_lambda: float = 0.95
    """Lambda of the advantage estimation."""
    clip_range: float = 0.2
    """Largest change of a probability ratio that is rewarded."""
    reward_scale: float = 1.0
    """Multiplies rewards."""
    value_cost: float = 0.5
    """Weight of the value loss, itself half a squared error."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("unroll_length", "num_minibatches", "num_epochs"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))

    @property
    def num_rows(self) -> int:
        """Rows of an unroll: transitions, and the row they end at."""
        return self.unroll_length + 1

    @property
    def env_steps_per_update(self) -> float:
        """Env steps for each learner step."""
        return self.unroll_length * self.batch_size / self.num_epochs


def advantages_of(
    values: Tensor, rewards: Tensor, discounts: Tensor, mask: Tensor, gae_lambda: float
) -> Tensor:
    """Returns A_t = delta_t + gamma_{t+1} lambda A_{t+1}, float32 [T, B] (Schulman et al. 2016).

    Args:
      values: float32 [T + 1, B].
      rewards: float32 [T, B], received for action t.
      discounts: float32 [T, B], 0 where row t + 1 is terminated.
      mask: float32 [T, B], 0 where the step from row t does not exist.
      gae_lambda: in [0, 1].
    """
    deltas = mask * (rewards + discounts * values[1:] - values[:-1])
    following = torch.zeros_like(deltas[0])
    reversed_sums = []
    for delta, decay in zip(deltas.flip(0), (mask * discounts * gae_lambda).flip(0), strict=True):
        following = delta + decay * following
        reversed_sums.append(following)
    return torch.stack(reversed_sums).flip(0)


class Epochs(Experience):
    """Collects unrolls, estimates their advantages once, and returns each several times."""

    def __init__(self, config: PPOConfig, rng_seed: int) -> None:
        self._config = config
        self._num_collected = config.batch_size * config.num_minibatches
        self._queue = UnrollQueue(self._num_collected)
        self._generator = torch.Generator().manual_seed(rng_seed)
        self._minibatches: Iterator[Sample] = iter(())

    def put(self, completed: Completed) -> None:
        self._queue.put(completed.unrolls)

    def next_batch(self) -> Sample:
        sample = next(self._minibatches, None)
        if sample is None:
            self._minibatches = self._epochs(self._queue.get(self._num_collected))
            sample = next(self._minibatches)
        return sample

    def report(self) -> dict[str, float]:
        return {"queue/unrolls": len(self._queue)}

    def close(self) -> None:
        self._queue.close()

    def _epochs(self, collected: Unrolls) -> Iterator[Sample]:
        prepared, size = self._with_advantages(collected), self._config.batch_size
        for epoch in range(self._config.num_epochs):
            order = torch.randperm(prepared.num_unrolls, generator=self._generator)
            shuffled = index_unrolls(prepared, order.to(prepared.steps.actions.device))
            for start in range(0, self._num_collected, size):
                minibatch = Batch(select_unrolls(shuffled, start, start + size))
                is_fresh = epoch == 0 and start == 0
                yield Sample(minibatch, newest=collected if is_fresh else None)

    def _with_advantages(self, unrolls: Unrolls) -> Unrolls:
        """Returns the unrolls with normalised advantages, and value targets, at each row."""
        config, stored = self._config, unrolls.steps
        steps = transitions(stored.rows, config.discount_factor)
        values = stored.policy_outputs["value"]
        rewards = config.reward_scale * steps.rewards
        raw = advantages_of(values, rewards, steps.discounts, steps.mask, config.gae_lambda)
        valid = raw[steps.mask.bool()]
        normalised = (raw - valid.mean()) / (valid.std() + 1e-8)
        padding = torch.zeros_like(raw[:1])  # The last row starts no transition.
        outputs = stored.policy_outputs | {
            "advantage": torch.cat([normalised, padding]),
            "value_target": torch.cat([raw + values[:-1], padding]),
        }
        return Unrolls(stored._replace(policy_outputs=outputs), unrolls.initial_state)


class PPO(Agent):
    """See `learner.agents.base.Agent` for the arguments of each method."""

    Config = PPOConfig

    def __init__(self, spec: EnvSpec, network: NetworkConfig, agent: PPOConfig) -> None:
        self.spec = spec
        self.network_config = network
        self.config = agent
        self.unroll_length = agent.unroll_length
        self.batch_size = 0  # 0: all environments are in phase, so one policy collects a batch.
        self._template = self.build_network()

    def build_network(self) -> ActorCritic:
        return ActorCritic(self.spec, self.network_config)

    def initial_state(self, batch_size: int, device: torch.device) -> State:
        return self._template.initial_state(batch_size, device)

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        output, state = network(inputs.rows, inputs.state)
        logits, values = output.logits[0], output.values[0]
        actions = distributions.sample(logits, generator)
        if inputs.greedy is not None:
            actions = torch.where(inputs.greedy, distributions.greedy(logits), actions)
        return ActOutput(actions, {"logits": logits, "value": values}, state, values)

    def make_experience(self, context: ExperienceContext) -> Epochs:
        return Epochs(self.config, context.rng_seed)

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        return transitions(unrolls.steps.rows, self.config.discount_factor).mask.sum()

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        """-E[min(r A, clip(r) A)] + value and entropy losses (Schulman et al. 2017, eq. 9)."""
        config, stored = self.config, batch.unrolls.steps
        output, _ = network(stored.rows, batch.unrolls.initial_state)
        mask = transitions(stored.rows, config.discount_factor).mask
        logits, actions = output.logits[:-1], stored.actions[:-1]
        recorded = distributions.log_prob(stored.policy_outputs["logits"][:-1], actions)
        ratios = (distributions.log_prob(logits, actions) - recorded).exp()
        advantages = stored.policy_outputs["advantage"][:-1]
        clipped = ratios.clamp(1 - config.clip_range, 1 + config.clip_range)
        gain = (torch.minimum(ratios * advantages, clipped * advantages) * mask).sum()
        targets = stored.policy_outputs["value_target"][:-1]
        value_loss = losses.value_loss(output.values[:-1], targets, mask)
        entropy_loss = losses.entropy_loss(logits, mask)
        total = -gain + config.value_cost * value_loss + config.entropy_cost * entropy_loss
        loss = total / num_valid.clamp(min=1)
        sums = {
            "loss/surrogate": -gain,
            "loss/value": value_loss,
            "policy/entropy_mean": -entropy_loss,
        }
        metrics = {name: x.detach() / num_valid.clamp(min=1) for name, x in sums.items()}
        return LossOutput(loss, {"loss/total": loss.detach()} | metrics)

    @torch.no_grad()
    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        steps = unrolls.steps
        output, _ = network(steps.rows, unrolls.initial_state)
        recorded = distributions.log_prob(steps.policy_outputs["logits"], steps.actions)
        return distributions.log_prob(output.logits, steps.actions) - recorded
