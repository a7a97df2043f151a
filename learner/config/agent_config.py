"""The settings of the algorithms; those of everything else are in run_config.py.

`AgentConfig` holds the fields that every algorithm's config has. Read by the command line,
which must not import torch, and by the agents.
"""

import abc
import dataclasses
import inspect
import math
from typing import Annotated, Any, Literal, NamedTuple, Self

import tyro

from learner.config.plugins import Kind, load
from seed.errors import ConfigError, expected, require
from seed.serialization import register_open_set

Schedule = Literal["linear", "constant"]

AGENTS = Kind("agent", "seed_rl.agents", ("vtrace", "r2d2"))

# In a config.yaml this field stands as `agent: {algorithm: NAME, ...}`.
AgentName = Annotated[str, tyro.conf.arg(name="agent")]


class RewardHandling(NamedTuple):
    """What an agent does to raw rewards before it trains on them."""

    words: str = ""
    """For the log: "rewards: ..."; empty if the agent does not say."""
    scale: float = 1.0
    """Multiplies them."""
    clip_min: float = -math.inf
    """Smallest reward trained on, after scaling."""
    clip_max: float = math.inf
    """Largest reward trained on, after scaling."""
    bounds_any: bool = True
    """Whether rewards of any size are fit to train on, so that no warning is needed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentConfig(abc.ABC):
    """The fields that every algorithm's config has. Each algorithm derives its own class.

    Every field of a subclass needs a default and becomes a flag, with the line under the
    field as its help.
    """

    algorithm: AgentName = ""
    """Which algorithm acts and trains: vtrace, r2d2, the name of an installed package's agent,
    or module:Name. The other flags of this group belong to its config."""
    batch_size: int = 32
    """B: unrolls collected for one learner step."""

    def __post_init__(self) -> None:
        require(self.batch_size >= 1, "batch_size", "at least 1", self.batch_size)

    @property
    @abc.abstractmethod
    def num_rows(self) -> int:
        """Rows of one sample of the loss: T transitions, and the row that ends the last one."""

    @property
    def unrolls_per_update(self) -> int:
        """Unrolls in the batch of one learner step."""
        return self.batch_size

    @property
    def env_steps_per_update(self) -> float:
        """Env steps collected for each learner step, on average."""
        return self.batch_size * (self.num_rows - 1)

    @property
    def env_steps_before_training(self) -> int:
        """Env steps collected before the first learner step, beyond those of its batch."""
        return 0

    @property
    def reward_handling(self) -> RewardHandling:
        """What the agent does to raw rewards; a run says it once, and warns if it does not suit."""
        return RewardHandling()

    def share(self, num_ranks: int) -> Self:
        """Returns the config of one of `num_ranks` learners that train one network together.

        Raises:
          ConfigError: the learners cannot share a batch evenly.
        """
        if self.batch_size % num_ranks:
            wanted = f"a multiple of the {num_ranks} learners that share it"
            raise ConfigError(expected("batch_size", wanted, self.batch_size))
        return dataclasses.replace(self, batch_size=self.batch_size // num_ranks)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VTraceConfig(AgentConfig):
    """IMPALA's actor-critic with V-trace corrections (Espeholt et al. 2018)."""

    algorithm: AgentName = "vtrace"
    unroll_length: int = 20
    """T: transitions in an unroll."""
    sample_reuse: int = 1
    """Learner steps in which each unroll takes part: a step trains on B fresh unrolls and on
    those of the sample_reuse - 1 steps before. V-trace corrects for their age. Fewer env steps
    are needed, but each costs more training. Adds sample_reuse - 1 learner steps to the
    largest policy lag (docs/lag.md)."""
    discount_factor: float = 0.99
    reward_scale: float = 1.0
    """Multiplies rewards before clipping."""
    reward_clip_min: float = -1.0
    """Smallest reward trained on, after scaling. -inf for no clipping."""
    reward_clip_max: float = 1.0
    """Largest reward trained on, after scaling. inf for no clipping."""
    value_cost: float = 0.5
    """Weight of the value loss, which is half the squared error."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus; the starting weight with an entropy target."""
    entropy_cost_schedule: Schedule = "constant"
    """"linear": decays to 0 as env steps reach total_env_steps. Exploration first, then
    precision. Not with an entropy target, which sets the weight."""
    entropy_target: float | None = None
    """Entropy in nats that an adaptive entropy cost steers to; none: fixed cost."""
    entropy_target_speed: float = 10.0
    """k of the adaptive cost exp(k theta): how fast the cost changes."""
    queue_batches: int = 1
    """Batches of unrolls that may wait for the trainer. When the queue is full, inference
    pauses. So the policy lag is at most queue_batches + 2 N / batch_size + sample_reuse
    + 1 learner steps with N environments, and 32 / batch_size more if training has a
    process of its own (docs/lag.md)."""
    rho_max: float = 1.0
    """Clip of the importance weight in the value target's temporal difference."""
    c_max: float = 1.0
    """Clip of the trace weight."""
    pg_rho_max: float = 1.0
    """Clip of the importance weight of the policy gradient."""
    trace_lambda: float = 1.0
    """Lambda multiplying the trace weight."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """How the loss is reduced over the valid steps of a batch. The sum is IMPALA's. With the
    mean, gradients are some T x B times smaller, so max_grad_norm and epsilon must shrink too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.unroll_length >= 1, "unroll_length", "at least 1", self.unroll_length)
        require(self.sample_reuse >= 1, "sample_reuse", "at least 1", self.sample_reuse)
        require(self.queue_batches >= 1, "queue_batches", "at least 1", self.queue_batches)
        require(0 <= self.discount_factor <= 1, "discount_factor", "[0, 1]", self.discount_factor)
        require(
            self.reward_clip_min < self.reward_clip_max,
            "reward_clip_min",
            "below reward_clip_max",
            self.reward_clip_min,
        )
        for name in ("reward_scale", "entropy_target_speed"):
            require(getattr(self, name) > 0, name, "above 0", getattr(self, name))
        for name in ("value_cost", "entropy_cost", "rho_max", "c_max", "pg_rho_max"):
            require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        require(0 <= self.trace_lambda <= 1, "trace_lambda", "[0, 1]", self.trace_lambda)
        if self.entropy_target is not None:
            require(self.entropy_cost > 0, "entropy_cost", "above 0 with entropy_target", 0)
            schedule = self.entropy_cost_schedule
            wanted = "constant with entropy_target"
            require(schedule == "constant", "entropy_cost_schedule", wanted, schedule)
            require(self.entropy_target > 0, "entropy_target", "above 0", self.entropy_target)

    @property
    def num_rows(self) -> int:
        return self.unroll_length + 1

    @property
    def unrolls_per_update(self) -> int:
        return self.batch_size * self.sample_reuse

    @property
    def reward_handling(self) -> RewardHandling:
        low, high = self.reward_clip_min, self.reward_clip_max
        is_clipped = (low, high) != (-math.inf, math.inf)
        clipped = f"clipped to [{low:g}, {high:g}]" if is_clipped else "not clipped"
        words = f"{_scaled(self.reward_scale)}{clipped}"
        return RewardHandling(words, self.reward_scale, low, high, bounds_any=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """Prioritised replay of sequences (Schaul et al. 2016, Horgan et al. 2018)."""

    replay_capacity: int = 100_000
    """Sequences held; new ones replace the oldest. The policy lag is some
    samples_per_insert * replay_capacity / batch_size learner steps at most (docs/lag.md)."""
    replay_min_size: int = 5_000
    """Sequences collected before training starts."""
    samples_per_insert: float = 0.75
    """Mean number of times that a sequence is trained on. The side that is ahead waits: the
    trainer for new sequences, or acting for the trainer."""
    priority_exponent: float = 0.9
    """Sequences are sampled in proportion to their priority to this power; 0: evenly."""
    importance_exponent: float = 0.6
    """How far importance weights make up for uneven sampling; 1: in full."""
    replay_compression: Literal["none", "zstd"] = "none"
    """Compression of the observations held; uint8 observations only. "zstd": screens take a tenth
    of the memory or less, for some CPU time at each insert and sample (docs/replay.md)."""
    checkpoint_replay: bool = True
    """Save the replay with each checkpoint, up to the size limit. Without a saved replay, a
    resumed run collects replay_min_size new sequences before it trains."""
    checkpoint_replay_limit_gib: float = 4.0
    """Largest replay, in GiB, that is saved with a checkpoint."""

    def __post_init__(self) -> None:
        capacity, min_size = self.replay_capacity, self.replay_min_size
        # With a larger capacity the links and priorities alone take several GiB, before the size of
        # a sequence is known.
        require(1 <= capacity <= 10**8, "replay_capacity", "1 .. 10^8", capacity)
        require(1 <= min_size <= capacity, "replay_min_size", "from 1 to replay_capacity", min_size)
        require(
            self.samples_per_insert > 0, "samples_per_insert", "above 0", self.samples_per_insert
        )
        for name in ("priority_exponent", "importance_exponent"):
            require(0 <= getattr(self, name) <= 1, name, "[0, 1]", getattr(self, name))
        limit = self.checkpoint_replay_limit_gib
        require(limit >= 0, "checkpoint_replay_limit_gib", "0 or more", limit)

    def share(self, num_ranks: int) -> "ReplayConfig":
        """Returns the replay of one of `num_ranks` learners, sizes rounded up."""
        return dataclasses.replace(
            self,
            replay_capacity=-(-self.replay_capacity // num_ranks),
            replay_min_size=-(-self.replay_min_size // num_ranks),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class R2D2Config(AgentConfig):
    """Recurrent replay distributed DQN (Kapturowski et al. 2019)."""

    algorithm: AgentName = "r2d2"
    batch_size: int = 64
    """B: sequences in one learner step."""
    sequence_length: int = 80
    """L: transitions trained in a sequence."""
    burn_in: int = 40
    """Rows before the trained ones that only bring the recurrent state up to date."""
    sequence_period: int = 0
    """Rows between the starts of an environment's sequences. 0: sequence_length, so that
    every transition is trained in exactly one sequence."""
    discount_factor: float = 0.997
    n_step: int = 5
    """Rewards summed before a target bootstraps."""
    reward_scale: float = 1.0
    """Multiplies rewards. Rewards are not clipped: the value rescaling limits their effect."""
    rescale_epsilon: float = 1e-3
    """epsilon of h(x) = sign(x)(sqrt(|x| + 1) - 1) + epsilon x."""
    priority_mix: float = 0.9
    """eta: a sequence's priority is eta times its largest absolute TD error plus
    1 - eta times the mean."""
    target_update_every: int = 2_500
    """Learner steps between copies of the trained network to the target network."""
    exploration_base: float = 0.4
    """Environment i acts at random with probability base^(1 + exponent u_i), its
    u_i in [0, 1) evenly spread over the environments."""
    exploration_exponent: float = 7.0
    """The exponent in the formula of exploration_base."""
    eval_epsilon: float = 1e-3
    """Probability of a random action in evaluation."""
    head_size: int = 512
    """Units of the hidden layer of each duelling head; 0 for linear heads."""
    replay: ReplayConfig = ReplayConfig()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("sequence_length", "n_step", "target_update_every"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("burn_in", "sequence_period", "head_size", "exploration_exponent"):
            require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        for name in ("discount_factor", "priority_mix", "exploration_base", "eval_epsilon"):
            require(0 <= getattr(self, name) <= 1, name, "[0, 1]", getattr(self, name))
        for name in ("reward_scale", "rescale_epsilon"):
            require(getattr(self, name) > 0, name, "above 0", getattr(self, name))

    @property
    def period(self) -> int:
        """Rows between the starts of an environment's sequences."""
        return self.sequence_period or self.sequence_length

    @property
    def num_rows(self) -> int:
        """Rows of a sequence: burn-in, trained transitions, and the row that ends the last one."""
        return self.burn_in + self.sequence_length + 1

    @property
    def reward_handling(self) -> RewardHandling:
        rescaling = f"h(x) = sign(x)(sqrt(|x| + 1) - 1) + {self.rescale_epsilon:g} x"
        words = f"{_scaled(self.reward_scale)}not clipped; values are rescaled by {rescaling}"
        return RewardHandling(words, self.reward_scale)

    @property
    def env_steps_per_update(self) -> float:
        return self.batch_size * self.period / self.replay.samples_per_insert

    @property
    def env_steps_before_training(self) -> int:
        return self.replay.replay_min_size * self.period

    def share(self, num_ranks: int) -> Self:
        """Divides the replay too: each learner replays the sequences of its own actors."""
        replay = self.replay.share(num_ranks)
        return dataclasses.replace(super().share(num_ranks), replay=replay)


def _scaled(scale: float) -> str:
    return "" if scale == 1 else f"multiplied by {scale:g}, "


def config_class_of(algorithm: str, *, field: str = AGENTS.field) -> type[AgentConfig]:
    """Returns the class of the config of an algorithm; imports only modules of other packages.

    Args:
      algorithm: "vtrace", "r2d2", the entry point of an installed package, or module:Name of
        an agent class whose class attribute `Config` is its config.
      field: the field that messages name.

    Raises:
      ConfigError: there is no such agent, or its `Config` cannot hold flags.
    """
    if algorithm in _BUILT_IN:
        return _BUILT_IN[algorithm]
    agent = load(AGENTS._replace(field=field), algorithm)
    if not isinstance(agent, type):
        raise ConfigError(expected(field, "the class of an agent", f"{algorithm}, {agent!r}"))
    config = getattr(agent, "Config", None)
    problem = _problem_with(config)
    if problem:
        wanted = "an agent whose class attribute Config is a dataclass derived from AgentConfig"
        raise ConfigError(expected(field, wanted, f"{algorithm}, whose Config {problem}"))
    assert isinstance(config, type) and issubclass(config, AgentConfig)
    return config


_BUILT_IN: dict[str, type[AgentConfig]] = {"vtrace": VTraceConfig, "r2d2": R2D2Config}


def _problem_with(config: object) -> str | None:
    """Returns why `config` cannot be made without arguments or cannot have flags; else None."""
    if not isinstance(config, type) or not issubclass(config, AgentConfig):
        return f"is {config!r}"
    if inspect.get_annotations(config) and "__dataclass_fields__" not in vars(config):
        return "has fields, but no @dataclasses.dataclass(frozen=True, kw_only=True) above it"
    if inspect.isabstract(config):
        return f"does not define {', '.join(sorted(config.__abstractmethods__))}"
    for field in dataclasses.fields(config):
        if field.default is field.default_factory is dataclasses.MISSING:
            return f"has no default for {field.name}"
    return None


def _class_of(fields: dict[str, Any]) -> type[AgentConfig]:
    """Returns the config class that a file's mapping describes; VTraceConfig if it has no name."""
    algorithm = fields.get("algorithm", VTraceConfig.algorithm)
    require(isinstance(algorithm, str), "algorithm", "a string", algorithm)
    return config_class_of(algorithm, field="algorithm")


register_open_set(AgentConfig, _class_of)
