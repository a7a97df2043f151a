"""Every knob of a run: frozen dataclasses, one per part, each field a flag.

Those of the algorithms are in learner/config/agent_config.py. All configs live here, not beside
the code that reads them, because the command line and the actors must not import torch.
Each part of the code receives only its own config. `__post_init__` refuses values that cannot
work; no value is adjusted silently.
"""

import dataclasses
from typing import Literal

from learner.config.agent_config import AgentConfig, Schedule, VTraceConfig
from learner.config.plugins import Kind, check_name
from seed.env_config import EnvConfig
from seed.errors import require


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

    @property
    def num_envs(self) -> int:
        """Environments of one actor."""
        return self.envs_per_group * self.num_groups


OBSERVERS = Kind("observers", "seed_rl.observers", ())
TORSOS = Kind(
    "torso",
    "seed_rl.torsos",
    ("auto", "mlp", "small_conv", "impala_shallow", "impala_deep", "nature"),
)

IMAGE_LAYOUTS = ("auto", "channels_first", "channels_last", "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The network; what the environment's spec decides is not repeated here."""

    torso: str = "auto"
    """The part that reads an observation: mlp, small_conv, impala_shallow, impala_deep, nature,
    or the name of an installed package's torso, or module:Name of a torso or of a whole network
    without its heads. "auto": mlp for vectors, small_conv for images under 36 pixels,
    impala_shallow for larger ones."""
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Layers of the mlp torso."""
    lstm_size: int = 0
    """Units of the LSTM behind the torso; 0 for none."""
    lstm_forget_bias: float = 0.0
    """Added to the bias of the LSTM's forget gates before training (Gers et al. 2000).
    Before training, the gates keep a share of some 1 / (1 + e^-bias) of the memory each step:
    half of it at 0. A memory that fades before it is needed cannot be learned from."""
    frame_stack: int = 1
    """Newest observations that the network sees at once, zeros before the first."""
    image_layout: tuple[str, ...] = ()
    """How observations of two, three or four axes are read: channels_first, channels_last, or none
    for a vector; auto, or nothing, for a guess from the shape. LEAF=LAYOUT is for one part of an
    observation that has several: --image-layout camera=channels_first prices=none. At the start of
    a run the log says how each part is read."""
    center_images: bool = False
    """Subtract from each pixel its mean over the images trained on, so that a still
    background, most of an Atari screen, does not hide what moves."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Number type of the multiplications in torsos, in acting and training. Weights, LSTM, heads,
    losses and all recorded values are float32 either way. bfloat16 keeps 8 bits of a number:
    values that training recomputes may differ from the recorded ones in the third digit, not
    the sixth. On NVIDIA GPUs PyTorch computes float32 convolutions in TF32, which keeps 11."""
    see_last_step: bool = False
    """Feed the previous action (one-hot) and the clipped reward behind the torso."""

    def __post_init__(self) -> None:
        check_name(TORSOS, self.torso)
        sizes = self.hidden_sizes
        require(bool(sizes) and min(sizes) >= 1, "hidden_sizes", "positive sizes", sizes)
        require(self.lstm_size >= 0, "lstm_size", "0 or more", self.lstm_size)
        bias = self.lstm_forget_bias
        require(abs(bias) <= 20, "lstm_forget_bias", "from -20 to 20", bias)
        require(self.frame_stack >= 1, "frame_stack", "at least 1", self.frame_stack)
        for entry in self.image_layout:
            is_known = entry.rpartition("=")[2] in IMAGE_LAYOUTS
            wanted = f"{', '.join(IMAGE_LAYOUTS)}, or LEAF= before one of them"
            require(is_known, "image_layout", wanted, entry)


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
    max_non_finite_updates: int = 10
    """The run stops after this many updates in a row whose loss or gradient is not finite.
    Each such update is left out, and its batch written to the run's non_finite/."""

    def __post_init__(self) -> None:
        require(self.learning_rate >= 0, "learning_rate", "0 or more", self.learning_rate)
        require(0 <= self.optimizer_decay < 1, "optimizer_decay", "[0, 1)", self.optimizer_decay)
        require(0 <= self.momentum < 1, "momentum", "[0, 1)", self.momentum)
        require(self.epsilon > 0, "epsilon", "above 0", self.epsilon)
        require(self.max_grad_norm >= 0, "max_grad_norm", "0 or more", self.max_grad_norm)
        most = self.max_non_finite_updates
        require(most >= 1, "max_non_finite_updates", "at least 1", most)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceConfig:
    """When the learner closes a batch of observations and acts on it."""

    max_inference_batch: int = 1024
    """Environments at which a batch is full."""
    max_wait_ms: float = 10.0
    """Longest time that an observation waits for others before its batch closes. It waits less
    if the work on a batch takes less time than that."""
    min_fill: float = 0.25
    """Largest share of the connected environments for which an idle device waits. It waits for
    fewer if fewer report, at the present rate, while the device works on a batch."""
    cuda_graphs: Literal["auto", "on", "off"] = "auto"
    """Whether batches are padded to powers of two, so that a GPU records its work once for each
    size. "auto": on a GPU. "on" also pads on a CPU, where it gains nothing."""
    actor_timeout_s: float = 300.0
    """Seconds without a step, or a sign of life, after which an actor is dropped; it may
    reconnect. An actor that is at work gives signs (`--env-timeout-s` bounds its steps)."""
    max_envs: int = 8192
    """Environments served at once, including those that only evaluate. It bounds the memory of
    their states and open unrolls, however many actors connect. Further actors wait until others
    leave."""

    def __post_init__(self) -> None:
        batch = self.max_inference_batch
        require(batch >= 1, "max_inference_batch", "at least 1", batch)
        require(self.max_wait_ms >= 0, "max_wait_ms", "0 or more", self.max_wait_ms)
        require(0 <= self.min_fill <= 1, "min_fill", "[0, 1]", self.min_fill)
        require(self.actor_timeout_s > 0, "actor_timeout_s", "above 0", self.actor_timeout_s)
        require(self.max_envs >= 1, "max_envs", "at least 1", self.max_envs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """The learner process."""

    total_env_steps: int = 50_000_000
    """Env steps (actions applied) after which the run is complete."""
    device: str = "auto"
    """"auto" (CUDA where there is one), "cpu", "cuda", "cuda:1", ..."""
    torch_threads: int = 0
    """Threads within one tensor operation on the CPU; 0: half of the usable cores,
    divided by train_threads."""
    train_in: Literal["auto", "thread", "process"] = "auto"
    """Where training runs. "process": a process of its own, so that Python's interpreter lock
    does not make training wait for acting. "auto": "process" on a CPU, "thread" on a GPU."""
    ingress_processes: int = 0
    """Processes that serve the actors, so that gRPC leaves Python's interpreter lock to acting.
    For runs that are serving-bound while cores are idle; Linux only. The processes share a TCP
    port. With a unix socket, each process after the first has a socket of its own: PATH-1,
    PATH-2, ... 0: a thread of the learner serves."""
    train_threads: int = 0
    """Threads that share the unrolls of one update, on the CPU; 0: half as many as
    there are usable cores, at most 4. Always 1 on a GPU."""
    channels_last: Literal["auto", "on", "off"] = "auto"
    """Whether the channels of convolution weights, and so of images, come after their pixels in
    memory. "auto": in the networks that train, not in those that act."""
    compile: bool = False
    """Compile the part of the network that reads observations, in training (torch.compile). The
    first updates then take a minute. It needs a C++ compiler on a CPU, where it has been slower
    so far, and Triton on a GPU."""
    checkpoint_every_s: float = 300.0
    """Seconds between checkpoints; one more is written at the end."""
    keep_checkpoints: int = 3
    """Newest checkpoints kept."""
    keep_best: bool = True
    """Keep one more checkpoint, checkpoints/best, with the weights that had the best score so
    far. The score is the mean return of the last 20 games of evaluation actors, or without them
    of the last 100 training games. It holds no replay."""
    observers: tuple[str, ...] = ()
    """Watchers of every step, such as a page that shows games or a recorder
    (learner/acting/observers.py). Each is module:Name or the name of an installed package's
    observer. They slow acting down."""
    report_every_s: float = 5.0
    """Seconds between reports (metrics.jsonl, TensorBoard, terminal)."""

    def __post_init__(self) -> None:
        require(self.total_env_steps >= 1, "total_env_steps", "at least 1", self.total_env_steps)
        processes = self.ingress_processes
        require(0 <= processes <= 64, "ingress_processes", "0 .. 64", processes)
        require(self.torch_threads >= 0, "torch_threads", "0 or more", self.torch_threads)
        require(self.train_threads >= 0, "train_threads", "0 or more", self.train_threads)
        require(self.keep_checkpoints >= 1, "keep_checkpoints", "at least 1", self.keep_checkpoints)
        every_s = self.checkpoint_every_s
        require(every_s > 0, "checkpoint_every_s", "above 0", every_s)
        require(self.report_every_s > 0, "report_every_s", "above 0", self.report_every_s)
        for name in self.observers:
            check_name(OBSERVERS, name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """All settings of a run; written to its config.yaml."""

    env: EnvConfig = EnvConfig()
    actor: ActorConfig = ActorConfig()
    network: NetworkConfig = NetworkConfig()
    agent: AgentConfig = VTraceConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    inference: InferenceConfig = InferenceConfig()
    learner: LearnerConfig = LearnerConfig()
    rng_seed: int = 1
    """Seed of the network's weights, of action sampling and of the environments."""

    def __post_init__(self) -> None:
        require(0 <= self.rng_seed < 2**31, "rng_seed", "0 .. 2^31 - 1", self.rng_seed)
        # Otherwise every actor that follows its task would be refused.
        wanted = f"at least the {self.actor.num_envs} environments of one actor"
        max_envs = self.inference.max_envs
        require(max_envs >= self.actor.num_envs, "max_envs", wanted, max_envs)
        # Otherwise the run would end before training begins.
        collected, total = self.agent.env_steps_before_training, self.learner.total_env_steps
        wanted = f"more than the {collected} env steps before training starts"
        require(total > collected, "total_env_steps", wanted, total)
