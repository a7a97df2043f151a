"""IMPALA's actor-critic with V-trace (Espeholt et al. 2018).

Acting samples from the policy; the loss corrects for the lag between the
weights that acted and those being trained. The maths is in `learner/algos/`.
"""

import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, ActOutput, Agent, LossOutput
from learner.algos import distributions, losses, rewards, vtrace
from learner.algos.explained_variance import moments, with_explained_variance
from learner.algos.optimizers import scheduled
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import NetworkConfig
from learner.experience.base import ExperienceContext
from learner.experience.fresh import FreshUnrolls
from learner.networks.actor_critic import ActorCritic, ActorCriticOutput
from learner.records import Batch, Rows, State, Unrolls, transitions
from seed.specs import EnvSpec


class VTraceNetwork(ActorCritic):
    """The actor-critic, and theta of the adaptive entropy cost if there is one."""

    def __init__(self, spec: EnvSpec, network: NetworkConfig, agent: VTraceConfig) -> None:
        super().__init__(spec, network)
        self.entropy_theta: nn.Parameter | None = None
        if agent.entropy_target is not None:
            theta = losses.theta_of_entropy_cost(agent.entropy_cost, agent.entropy_target_speed)
            self.entropy_theta = nn.Parameter(torch.tensor(theta))


class VTraceAgent(Agent):
    """See `learner.agents.base.Agent` for the methods."""

    Config = VTraceConfig

    def __init__(self, spec: EnvSpec, network: NetworkConfig, agent: VTraceConfig) -> None:
        self.spec = spec
        self.network_config = network
        self.config = agent
        self.unroll_length = agent.unroll_length
        self.batch_size = agent.batch_size
        self._template = self.build_network()

    def build_network(self) -> VTraceNetwork:
        return VTraceNetwork(self.spec, self.network_config, self.config)

    def initial_state(self, batch_size: int, device: torch.device) -> State:
        return self._template.initial_state(batch_size, device)

    def act(self, network: nn.Module, inputs: ActInput, generator: torch.Generator) -> ActOutput:
        output, next_state = self._forward(network, inputs.rows, inputs.state)
        logits = output.logits.squeeze(0)  # [B, A]
        actions = distributions.sample(logits, generator)
        if inputs.greedy is not None:
            actions = torch.where(inputs.greedy, distributions.greedy(logits), actions)
        return ActOutput(actions, {"logits": logits}, next_state, output.values.squeeze(0))

    def make_experience(self, context: ExperienceContext) -> FreshUnrolls:
        """Returns a bounded queue of unrolls, each trained on `sample_reuse` times."""
        config = self.config
        return FreshUnrolls(
            config.batch_size,
            queue_batches=config.queue_batches,
            sample_reuse=config.sample_reuse,
        )

    def update_statistics(self, network: nn.Module, unrolls: Unrolls) -> None:
        assert isinstance(network, VTraceNetwork)
        network.update_statistics(unrolls.steps.rows)

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        return transitions(unrolls.steps.rows, self.config.discount_factor).mask.sum()

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        """Policy gradient, value and entropy losses, summed or averaged over valid steps."""
        config, stored = self.config, batch.unrolls.steps
        output, _ = self._forward(network, stored.rows, batch.unrolls.initial_state)
        steps = transitions(stored.rows, config.discount_factor)
        logits, actions = output.logits[:-1], stored.actions[:-1]
        returns = vtrace.vtrace(
            behaviour_log_probs=distributions.log_prob(
                stored.policy_outputs["logits"][:-1], actions
            ),
            target_log_probs=distributions.log_prob(logits, actions),
            rewards=self._transform_rewards(steps.rewards),
            discounts=steps.discounts,
            mask=steps.mask,
            values=output.values,
            rho_max=config.rho_max,
            c_max=config.c_max,
            pg_rho_max=config.pg_rho_max,
            trace_lambda=config.trace_lambda,
        )
        policy_loss = losses.policy_gradient_loss(logits, actions, returns.advantages, steps.mask)
        value_loss = losses.value_loss(output.values[:-1], returns.value_targets, steps.mask)
        entropy_loss = losses.entropy_loss(logits, steps.mask)
        entropy_cost, cost_loss = self._entropy_cost(
            network, -entropy_loss, steps.mask.sum(), progress
        )
        loss = policy_loss + config.value_cost * value_loss + entropy_cost * entropy_loss
        loss = losses.reduce(loss + cost_loss, num_valid, config.loss_reduction)
        values = output.values[:-1].detach()
        sums = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "policy/entropy_mean": -entropy_loss,
            "policy/entropy_cost": entropy_cost * steps.mask.sum(),
            "policy/log_rho_mean": (returns.log_rhos * steps.mask).sum(),
            "value/mean": (values * steps.mask).sum(),
        }
        metrics = {name: x.detach() / num_valid.clamp(min=1) for name, x in sums.items()}
        metrics |= moments(values, returns.value_targets, steps.mask)
        return LossOutput(loss, {"loss/total": loss.detach()} | metrics)

    def finish_metrics(self, metrics: dict[str, float]) -> dict[str, float]:
        return with_explained_variance(metrics)

    @torch.no_grad()
    def log_ratios(self, network: nn.Module, unrolls: Unrolls) -> Tensor:
        steps = unrolls.steps
        output, _ = self._forward(network, steps.rows, unrolls.initial_state)
        recorded = distributions.log_prob(steps.policy_outputs["logits"], steps.actions)
        return distributions.log_prob(output.logits, steps.actions) - recorded

    def _forward(
        self, network: nn.Module, rows: Rows, state: State
    ) -> tuple[ActorCriticOutput, State]:
        return network(rows._replace(rewards=self._transform_rewards(rows.rewards)), state)

    def _transform_rewards(self, raw: Tensor) -> Tensor:
        config = self.config
        return rewards.transform_rewards(
            raw, config.reward_scale, config.reward_clip_min, config.reward_clip_max
        )

    def _entropy_cost(
        self, network: nn.Module, entropy_sum: Tensor, num_steps: Tensor, progress: float
    ) -> tuple[Tensor, Tensor]:
        """Returns the entropy cost, without gradient, and the loss that adapts it.

        Both `entropy_sum` and the returned loss are sums over `num_steps` valid steps.
        """
        theta = getattr(network, "entropy_theta", None)
        if theta is None:
            fixed = scheduled(self.config.entropy_cost, self.config.entropy_cost_schedule, progress)
            return torch.full_like(num_steps, fixed), torch.zeros_like(num_steps)
        speed, target = self.config.entropy_target_speed, self.config.entropy_target
        assert target is not None, "theta exists only with an entropy target"
        cost = losses.adaptive_entropy_cost(theta.detach(), speed)
        mean = entropy_sum / num_steps.clamp(min=1)
        return cost, num_steps * losses.entropy_cost_loss(theta, mean, target, speed)
