"""Recurrent replay distributed DQN (Kapturowski et al. 2019).

Acting is epsilon-greedy, each environment with an epsilon of its own; the loss is
n-step double Q-learning on replayed sequences. The maths is in `learner/algos/`, the
replay in `learner/experience/replay/`.
"""

import copy

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput, Agent, LossOutput
from learner.algos import epsilon_greedy, q_learning
from learner.algos.explained_variance import moments, with_explained_variance
from learner.algos.value_rescaling import inverse_rescale, rescale
from learner.config.agent_config import R2D2Config
from learner.config.run_config import NetworkConfig
from learner.experience.base import ExperienceContext
from learner.experience.replay.replayed_sequences import ReplayedSequences
from learner.networks.duelling_q import DuellingQ
from learner.records import (
    Batch,
    Rows,
    State,
    Steps,
    Transitions,
    Unrolls,
    map_tensors,
    transitions,
)
from seed.specs import EnvSpec


class R2D2Network(nn.Module):
    """The Q network that acts and is trained, and the older copy that computes its targets.

    Both are one module, so that checkpoints hold both. Only the online one is published to
    acting.
    """

    def __init__(self, spec: EnvSpec, network: NetworkConfig, agent: R2D2Config) -> None:
        super().__init__()
        self.online = DuellingQ(spec, network, agent.head_size)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def update_target(self) -> None:
        """Copies weights and running means, in place: replicas share their memory."""
        self.target.load_state_dict(self.online.state_dict())


class R2D2Agent(Agent):
    """See `learner.agents.base.Agent` for the methods.

    The methods that train take sequences of `config.num_rows` rows. The first
    `config.burn_in` rows only bring the state up to date:

        row        0 .. burn_in - 1    burn_in .. burn_in + L - 1    burn_in + L
                   burn-in             trained                       bootstraps
    """

    Config = R2D2Config

    def __init__(self, spec: EnvSpec, network: NetworkConfig, agent: R2D2Config) -> None:
        self.spec = spec
        self.network_config = network
        self.config = agent
        # Replay builds sequences from unrolls of one period.
        self.unroll_length = agent.period
        self.batch_size = agent.batch_size
        self._template = DuellingQ(spec, network, agent.head_size)

    def build_network(self) -> R2D2Network:
        return R2D2Network(self.spec, self.network_config, self.config)

    def acting_part(self, network: nn.Module) -> DuellingQ:
        return _checked(network).online

    def initial_state(self, batch_size: int, device: torch.device) -> State:
        return self._template.initial_state(batch_size, device)

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        config = self.config
        q_values, next_state = self._forward(network, inputs.rows, inputs.state)
        q_values = q_values.squeeze(0)  # [B, A]
        epsilons = epsilon_greedy.ladder(
            inputs.slots, config.exploration_base, config.exploration_exponent
        )
        if inputs.greedy is not None:
            epsilons = epsilons.masked_fill(inputs.greedy, config.eval_epsilon)
        actions = epsilon_greedy.select_actions(q_values, epsilons, generator)
        return ActOutput(actions, {"q": q_values}, next_state, q_values.amax(-1))

    def make_experience(self, context: ExperienceContext) -> ReplayedSequences:
        """Returns a prioritised replay of sequences.

        Raises:
          ConfigError: the replay would not fit into memory.
        """
        return ReplayedSequences(self.config, context, initial_priorities=self.initial_priorities)

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        _checked(network).online.update_statistics(unrolls.steps.rows)

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        """Returns the number of sequences: all weigh the same, with or without ends in them."""
        device = unrolls.steps.rows.is_first.device
        return torch.full((), unrolls.num_unrolls, dtype=torch.float32, device=device)

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        """Half the squared TD errors summed over a sequence, mean_b w_b loss_b over the batch.

        A metric is each sequence's mean over its valid steps, averaged over the batch
        without importance weights: "policy/q_mean" of the actions taken, "policy/q_max" of
        the best ones, both of the online network in rescaled units. "value/mean" is of the
        best ones too, in the units of the scaled rewards.
        """
        del progress  # nothing is scheduled
        networks, unrolls = _checked(network), batch.unrolls
        online_q = self._trained_q(networks.online, unrolls)
        with torch.no_grad():
            target_q = self._trained_q(networks.target, unrolls)
        actions, steps = self._trained_steps(unrolls)
        errors = self._td_errors(online_q, target_q, actions, steps)
        losses = q_learning.sequence_losses(errors)
        if batch.importance_weights is not None:
            losses = batch.importance_weights * losses
        loss = losses.sum() / num_valid
        priorities = q_learning.sequence_priorities(errors, steps.mask, self.config.priority_mix)
        chosen_q = q_learning.q_of_actions(online_q[:-1], actions).detach()
        best_q = online_q[:-1].detach().amax(-1)
        per_step = {
            "loss/td_error_mean": errors.abs(),
            "policy/q_mean": chosen_q,
            "policy/q_max": best_q,
            "value/mean": inverse_rescale(best_q, self.config.rescale_epsilon),
        }
        means = {k: q_learning.sequence_means(x, steps.mask) for k, x in per_step.items()}
        means["loss/priority_mean"] = priorities
        metrics = {name: x.detach().sum() / num_valid for name, x in means.items()}
        metrics |= moments(chosen_q, chosen_q + errors.detach(), steps.mask)
        return LossOutput(loss, {"loss/total": loss.detach()} | metrics, priorities)

    def finish_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        return with_explained_variance(metrics)

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        if learner_step % self.config.target_update_every == 0:
            _checked(network).update_target()

    @torch.no_grad()
    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        """Returns Q(t, a_t) minus the recorded one, in rescaled units."""
        steps = unrolls.steps
        q_values, _ = self._forward(network, steps.rows, unrolls.initial_state)
        return q_learning.q_of_actions(q_values - steps.policy_outputs["q"], steps.actions)

    @torch.no_grad()
    def initial_priorities(self, unrolls: Unrolls) -> Tensor:
        """Returns the priorities of sequences that have not been trained on, float32 [B].

        They are computed as in the loss, but with the Q values recorded at acting time for
        both networks. This needs no forward pass and no observations (`rows.observations`
        may be empty).
        """
        q_values = self._trained_part(unrolls).policy_outputs["q"]
        actions, steps = self._trained_steps(unrolls)
        errors = self._td_errors(q_values, q_values, actions, steps)
        return q_learning.sequence_priorities(errors, steps.mask, self.config.priority_mix)

    def _forward(self, network: nn.Module, rows: Rows, state: State) -> tuple[Tensor, State]:
        return network(self._as_seen(rows), state)

    def _as_seen(self, rows: Rows) -> Rows:
        """Returns rows with rewards as networks see them: scaled, then rescaled by h.

        The paper feeds the raw reward. A reward of some thousands would drown the LSTM's
        other inputs; clipping would hide its size. h does neither, and gives rewards the
        units of the values.
        """
        scaled = self.config.reward_scale * rows.rewards
        return rows._replace(rewards=rescale(scaled, self.config.rescale_epsilon))

    def _trained_q(self, network: DuellingQ, unrolls: Unrolls) -> Tensor:
        """Returns Q [L + 1, B, A] of the rows after the burn-in, which takes no gradient."""
        state, burn_in = unrolls.initial_state, self.config.burn_in
        if burn_in:
            warming = map_tensors(lambda x: x[:burn_in], unrolls.steps.rows)
            state = network.advance(self._as_seen(warming), state)
        return self._forward(network, self._trained_part(unrolls).rows, state)[0]

    def _trained_part(self, unrolls: Unrolls) -> Steps:
        """Returns the rows [L + 1, B] after the burn-in as views."""
        assert unrolls.steps.num_rows == self.config.num_rows, "not a whole sequence"
        return map_tensors(lambda x: x[self.config.burn_in :], unrolls.steps)

    def _trained_steps(self, unrolls: Unrolls) -> tuple[Tensor, Transitions]:
        """Returns the trained actions, int64 [L, B], and transitions, rewards scaled."""
        trained = self._trained_part(unrolls)
        steps = transitions(trained.rows, self.config.discount_factor)
        return trained.actions[:-1], steps._replace(
            rewards=self.config.reward_scale * steps.rewards
        )

    def _td_errors(
        self, online_q: Tensor, target_q: Tensor, actions: Tensor, steps: Transitions
    ) -> Tensor:
        return q_learning.td_errors(
            online_q=online_q,
            target_q=target_q,
            actions=actions,
            rewards=steps.rewards,
            discounts=steps.discounts,
            mask=steps.mask,
            n_step=self.config.n_step,
            rescale_epsilon=self.config.rescale_epsilon,
        )


def _checked(network: nn.Module) -> R2D2Network:
    assert isinstance(network, R2D2Network)
    return network
