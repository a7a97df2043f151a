"""Every knob of a run: frozen dataclasses, one per part, each field a flag.

They live here, not beside the code that reads them, because the command line and
the actors must not import torch. Code receives the part it needs.
`__post_init__` refuses what cannot work; nothing is adjusted quietly.
"""

import dataclasses
import json
from typing import Any, Literal

from seed.errors import ConfigError, expected

ATARI_PREFIX = "ALE/"


def require(condition: bool, field: str, wanted: str, got: object) -> None:
    """Raises ConfigError, naming `field`, unless `condition` holds."""
    if not condition:
        raise ConfigError(expected(field, wanted, repr(got)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariConfig:
    """Settings of ALE/* environments; others ignore them. Defaults follow Machado
    et al. 2018 (sticky actions, full action set, no life-loss terminals)."""

    repeat_action_probability: float = 0.25
    """Probability that the emulator repeats the previous action (sticky actions)."""
    full_action_space: bool = True
    """All 18 actions, rather than the game's own minimal set."""
    frame_skip: int = 4
    """Emulator frames an action is held for; one env step is this many frames."""
    max_pool: bool = True
    """Observe the maximum of the last two frames (removes sprite flicker)."""
    noop_max: int = 1
    """A game starts with 0 to noop_max - 1 no-op frames, uniformly."""
    life_loss_terminal: bool = False
    """Mark the loss of a life as terminated; the game itself goes on."""
    max_frames_per_episode: int = 108_000
    """Emulator frames after which a game is truncated (30 minutes of play)."""
    screen_size: int = 84
    """Height and width of the observed screen, in pixels."""
    grayscale: bool = True
    """Observe luminance [H, W] rather than colour [H, W, 3]."""

    def __post_init__(self) -> None:
        probability = self.repeat_action_probability
        require(0 <= probability < 1, "repeat_action_probability", "[0, 1)", probability)
        require(self.frame_skip >= 1, "frame_skip", "at least 1", self.frame_skip)
        # Pooling the only two frames of a skip of 1 would freeze the screen.
        if self.max_pool:
            require(self.frame_skip >= 2, "frame_skip", "at least 2 with max_pool", self.frame_skip)
        require(self.noop_max >= 1, "noop_max", "at least 1", self.noop_max)
        require(self.screen_size >= 8, "screen_size", "at least 8", self.screen_size)
        frames = self.max_frames_per_episode
        require(frames >= self.frame_skip, "max_frames_per_episode", "at least frame_skip", frames)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Which environment, and how it is set up. Sent to actors as JSON."""

    env_id: str = "CartPole-v1"
    """Registered Gymnasium id. "ALE/..." takes the native vectorised emulator."""
    env_kwargs: str = "{}"
    """JSON object of further keyword arguments of `gymnasium.make`."""
    atari: AtariConfig = AtariConfig()

    def __post_init__(self) -> None:
        require(bool(self.env_id), "env_id", "a registered environment id", self.env_id)
        kwargs = self.make_kwargs
        if self.is_atari:
            require(not kwargs, "env_kwargs", "{} for ALE/* (use the named flags)", kwargs)

    @property
    def is_atari(self) -> bool:
        return self.env_id.startswith(ATARI_PREFIX)

    @property
    def make_kwargs(self) -> dict[str, Any]:
        """`env_kwargs` parsed; raises ConfigError if it is not a JSON object."""
        try:
            kwargs = json.loads(self.env_kwargs)
        except json.JSONDecodeError as error:
            raise ConfigError(expected("env_kwargs", "a JSON object", self.env_kwargs)) from error
        require(isinstance(kwargs, dict), "env_kwargs", "a JSON object", self.env_kwargs)
        return kwargs

    @property
    def frames_per_step(self) -> int:
        """Emulator frames in one env step."""
        return self.atari.frame_skip if self.is_atari else 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorConfig:
    """How many environments each actor steps."""

    envs_per_group: int = 16
    """Environments stepped and sent together."""
    num_groups: int = 2
    """Groups an actor holds: one steps while the others wait for their actions."""

    def __post_init__(self) -> None:
        require(self.envs_per_group >= 1, "envs_per_group", "at least 1", self.envs_per_group)
        require(self.num_groups >= 1, "num_groups", "at least 1", self.num_groups)


Torso = Literal["auto", "mlp", "small_conv", "impala_shallow", "impala_deep", "nature"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network; what the environment's spec decides is not repeated here."""

    torso: Torso = "auto"
    """What reads an observation. "auto": mlp for vectors, small_conv for images
    under 36 pixels, impala_shallow for larger ones."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Layers of the mlp torso."""
    lstm_size: int = 0
    """Units of the LSTM behind the torso; 0 for none."""
    frame_stack: int = 1
    """Newest observations that the network sees at once, zeros before the first."""
    center_images: bool = False
    """Subtract from each pixel its mean over what has been trained on, so that a
    still background, most of an Atari screen, does not drown what moves."""
    see_last_step: bool = False
    """Feed the previous action (one-hot) and the clipped reward behind the torso."""

    def __post_init__(self) -> None:
        sizes = self.hidden_sizes
        require(bool(sizes) and min(sizes) >= 1, "hidden_sizes", "positive sizes", sizes)
        require(self.lstm_size >= 0, "lstm_size", "0 or more", self.lstm_size)
        require(self.frame_stack >= 1, "frame_stack", "at least 1", self.frame_stack)


Schedule = Literal["linear", "constant"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimiser and its schedule."""

    optimizer: Literal["rmsprop", "rmsprop_tf", "adam"] = "rmsprop"
    """"rmsprop": epsilon outside the root, accumulator from 0 (PyTorch's).
    "rmsprop_tf": epsilon inside the root, accumulator from 1 (TensorFlow's, as in
    the IMPALA and SEED code). Their epsilons are not interchangeable."""
    learning_rate: float = 6e-4
    """Step size at the start of the run."""
    learning_rate_schedule: Schedule = "linear"
    """"linear": decays to 0 as env steps reach total_env_steps."""
    optimizer_decay: float = 0.99
    """Decay of the squared-gradient average (RMSProp alpha, Adam beta 2)."""
    momentum: float = 0.0
    """RMSProp momentum, or Adam beta 1."""
    epsilon: float = 0.01
    """Added to the root (rmsprop, adam) or to the square under it (rmsprop_tf)."""
    max_grad_norm: float = 40.0
    """Global norm to which gradients are clipped; 0 for no clipping. It refers to
    the loss as reduced: a norm meant for sums is far too large for means."""

    def __post_init__(self) -> None:
        require(self.learning_rate >= 0, "learning_rate", "0 or more", self.learning_rate)
        require(0 <= self.optimizer_decay < 1, "optimizer_decay", "[0, 1)", self.optimizer_decay)
        require(0 <= self.momentum < 1, "momentum", "[0, 1)", self.momentum)
        require(self.epsilon > 0, "epsilon", "above 0", self.epsilon)
        require(self.max_grad_norm >= 0, "max_grad_norm", "0 or more", self.max_grad_norm)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VTraceConfig:
    """IMPALA's actor-critic with V-trace corrections (Espeholt et al. 2018)."""

    unroll_length: int = 20
    """T: transitions in an unroll."""
    batch_size: int = 32
    """B: fresh unrolls in one learner step."""
    sample_reuse: int = 1
    """Learner steps that each unroll takes part in: beside the B fresh ones, a step
    trains on those of the sample_reuse - 1 steps before. V-trace corrects for their
    age. Fewer env steps are needed, each costs more training."""
    discount_factor: float = 0.99
    reward_scale: float = 1.0
    """Multiplies rewards before clipping."""
    reward_clip_min: float = -1.0
    """Smallest reward trained on, after scaling. -inf for no clipping."""
    reward_clip_max: float = 1.0
    """Largest reward trained on, after scaling. inf for no clipping."""
    value_cost: float = 0.5
    """Weight of the value loss, itself half a squared error."""
    entropy_cost: float = 0.01
    """Weight of the entropy bonus; the starting weight with an entropy target."""
    entropy_cost_schedule: Schedule = "constant"
    """"linear": decays to 0 as env steps reach total_env_steps. Exploration first, then
    precision. Not with an entropy target, which sets the weight."""
    entropy_target: float | None = None
    """Entropy in nats that an adaptive entropy cost steers to; none: fixed cost."""
    entropy_target_speed: float = 10.0
    """k of the adaptive cost exp(k theta): how fast it moves."""
    queue_batches: int = 1
    """Batches of unrolls that may wait for the trainer. When they do, inference
    pauses: this bounds the policy lag."""
    rho_max: float = 1.0
    """Clip of the importance weight in the value target's temporal difference."""
    c_max: float = 1.0
    """Clip of the trace weight."""
    pg_rho_max: float = 1.0
    """Clip of the importance weight of the policy gradient."""
    trace_lambda: float = 1.0
    """Lambda multiplying the trace weight."""
    loss_reduction: Literal["sum", "mean"] = "sum"
    """Over the valid steps of a batch. The sum is IMPALA's; with the mean, gradients
    are some T x B times smaller, so max_grad_norm and epsilon must shrink alike."""

    def __post_init__(self) -> None:
        require(self.unroll_length >= 1, "unroll_length", "at least 1", self.unroll_length)
        require(self.batch_size >= 1, "batch_size", "at least 1", self.batch_size)
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
        """Rows of what is trained on: transitions, and the row they end at."""
        return self.unroll_length + 1

    @property
    def unrolls_per_update(self) -> int:
        """Unrolls in one learner step."""
        return self.batch_size * self.sample_reuse

    @property
    def env_steps_per_update(self) -> float:
        """Env steps for each learner step."""
        return self.unroll_length * self.batch_size


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """Prioritised replay of sequences (Schaul et al. 2016, Horgan et al. 2018)."""

    replay_capacity: int = 100_000
    """Sequences held; the oldest make room for new ones."""
    replay_min_size: int = 5_000
    """Sequences collected before training starts."""
    samples_per_insert: float = 0.75
    """Times that a sequence is trained on, on average. Whoever is ahead waits: the
    trainer for new sequences, or acting for the trainer."""
    priority_exponent: float = 0.9
    """Sequences are sampled in proportion to their priority to this power; 0: evenly."""
    importance_exponent: float = 0.6
    """How far importance weights make up for uneven sampling; 1: in full."""
    checkpoint_replay: bool = True
    """Save the replay with each checkpoint, if it is within the limit; a resumed run
    otherwise collects replay_min_size sequences anew before it trains."""
    checkpoint_replay_limit_gib: float = 4.0
    """Largest replay, in GiB, that checkpoints hold."""

    def __post_init__(self) -> None:
        capacity, min_size = self.replay_capacity, self.replay_min_size
        # Beyond, its links and priorities alone take several GiB, before anyone could see
        # how large a sequence is and whether so many fit.
        require(1 <= capacity <= 10**8, "replay_capacity", "1 .. 10^8", capacity)
        require(1 <= min_size <= capacity, "replay_min_size", "from 1 to replay_capacity", min_size)
        require(
            self.samples_per_insert > 0, "samples_per_insert", "above 0", self.samples_per_insert
        )
        for name in ("priority_exponent", "importance_exponent"):
            require(0 <= getattr(self, name) <= 1, name, "[0, 1]", getattr(self, name))
        limit = self.checkpoint_replay_limit_gib
        require(limit >= 0, "checkpoint_replay_limit_gib", "0 or more", limit)


@dataclasses.dataclass(frozen=True, kw_only=True)
class R2D2Config:
    """Recurrent replay distributed DQN (Kapturowski et al. 2019)."""

    sequence_length: int = 80
    """L: transitions trained in a sequence."""
    burn_in: int = 40
    """Rows before them that only bring the recurrent state up to date."""
    sequence_period: int = 0
    """Rows between the starts of an environment's sequences; 0: sequence_length, so
    that every transition is trained in just one of them."""
    batch_size: int = 64
    """Sequences in one learner step."""
    discount_factor: float = 0.997
    n_step: int = 5
    """Rewards summed before a target bootstraps."""
    reward_scale: float = 1.0
    """Multiplies rewards, which are not clipped: the value rescaling tames them."""
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
    """See exploration_base."""
    eval_epsilon: float = 1e-3
    """Probability of a random action in evaluation."""
    head_size: int = 512
    """Units of the hidden layer of each duelling head; 0 for linear heads."""
    replay: ReplayConfig = ReplayConfig()

    def __post_init__(self) -> None:
        for name in ("sequence_length", "batch_size", "n_step", "target_update_every"):
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
        """Rows of a sequence: burn-in, trained transitions, and the row they end at."""
        return self.burn_in + self.sequence_length + 1

    @property
    def unrolls_per_update(self) -> int:
        """Sequences in one learner step."""
        return self.batch_size

    @property
    def env_steps_per_update(self) -> float:
        """Env steps for each learner step, on average."""
        return self.batch_size * self.period / self.replay.samples_per_insert


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """When the learner closes a batch of observations and acts on it."""

    max_inference_batch: int = 1024
    """Environments at which a batch is full."""
    max_wait_ms: float = 10.0
    """Longest that an observation waits for others before its batch closes."""
    min_fill: float = 0.25
    """Share of the connected environments for which an idle device waits."""

    def __post_init__(self) -> None:
        batch = self.max_inference_batch
        require(batch >= 1, "max_inference_batch", "at least 1", batch)
        require(self.max_wait_ms >= 0, "max_wait_ms", "0 or more", self.max_wait_ms)
        require(0 <= self.min_fill <= 1, "min_fill", "[0, 1]", self.min_fill)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """The learner process."""

    total_env_steps: int = 50_000_000
    """Env steps (actions applied) after which the run is complete."""
    device: str = "auto"
    """"auto" (CUDA where there is one), "cpu", "cuda", "cuda:1", ..."""
    torch_threads: int = 0
    """Threads within one tensor operation on the CPU; 0: what is left of half of the
    cores by train_threads."""
    train_threads: int = 0
    """Threads that share the unrolls of one update, on the CPU; 0: half as many as there
    are cores, at most 4. Always 1 on a GPU."""
    checkpoint_every_s: float = 300.0
    """Seconds between checkpoints; one more is written at the end."""
    keep_checkpoints: int = 3
    """Newest checkpoints kept."""
    report_every_s: float = 5.0
    """Seconds between reports (metrics.jsonl, TensorBoard, terminal)."""

    def __post_init__(self) -> None:
        require(self.total_env_steps >= 1, "total_env_steps", "at least 1", self.total_env_steps)
        require(self.torch_threads >= 0, "torch_threads", "0 or more", self.torch_threads)
        require(self.train_threads >= 0, "train_threads", "0 or more", self.train_threads)
        require(self.keep_checkpoints >= 1, "keep_checkpoints", "at least 1", self.keep_checkpoints)
        every_s = self.checkpoint_every_s
        require(every_s > 0, "checkpoint_every_s", "above 0", every_s)
        require(self.report_every_s > 0, "report_every_s", "above 0", self.report_every_s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that a run is made of; written to its config.yaml."""

    env: EnvConfig = EnvConfig()
    actor: ActorConfig = ActorConfig()
    network: NetworkConfig = NetworkConfig()
    agent: VTraceConfig | R2D2Config = VTraceConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    inference: InferenceConfig = InferenceConfig()
    learner: LearnerConfig = LearnerConfig()
    rng_seed: int = 1
    """Seed of the network's weights, of action sampling and of the environments."""

    def __post_init__(self) -> None:
        require(0 <= self.rng_seed < 2**31, "rng_seed", "0 .. 2^31 - 1", self.rng_seed)
        if isinstance(self.agent, R2D2Config):
            # Training would otherwise begin where the run ends.
            collected = self.agent.replay.replay_min_size * self.agent.period
            total = self.learner.total_env_steps
            wanted = f"more than the {collected} env steps of replay_min_size sequences"
            require(total > collected, "total_env_steps", wanted, total)
