"""The flags of `seed actor`, checked."""

import dataclasses
from pathlib import Path
from typing import Literal

from seed.addresses import check_address, check_metrics_address
from seed.errors import ConfigError, expected
from seed.logs import LogFormat
from seed.security import TlsFiles, check_client_flags
from seed.video_path import check_video_path


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorArgs:
    """Steps environments for a learner, which tells the actor what to run."""

    learner: str
    """Address of the learner, "host:port" or "unix:/path"; or several with commas between,
    of learners that train together (torchrun): the actor serves one of them, drawn at
    random, and tries the next one when it cannot reach that learner."""
    tls_ca: Path | None = None
    """Speak TLS. This PEM file holds the authority that signed the learner's certificate."""
    tls_cert: Path | None = None
    """PEM file of the actor's certificate, for a learner that asks for one (mutual TLS)."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key."""
    token_file: Path | None = None
    """File with the token that the learner asks for."""
    insecure: bool = False
    """Send the token without TLS even to another machine. Everybody on the way between the
    two machines can read it."""
    role: Literal["train", "eval"] = "train"
    """"train": steps are trained on. "eval": acts greedily, nothing is stored."""
    envs_per_group: int | None = None
    """Environments that step together and travel in one message. None: as many as the
    learner asks for."""
    num_groups: int | None = None
    """Groups of environments. One group steps while the others wait for their actions.
    None: as many as the learner asks for."""
    env_threads: int = 1
    """Threads that step one group. Only ALE/* can use more than one."""
    env_workers: int = 0
    """Processes that step one group, for environments that take milliseconds a step: about
    one for each free core. 0: this process steps them. ALE/* and environments that are
    registered as vectorised cannot use them."""
    video: Path | None = None
    """Write the first full episode to this .mp4 (H.264) or .webm (VP9) file. The actor then runs
    one environment."""
    env_timeout_s: float = 600.0
    """Longest time in seconds that a step or reset of one group may take. After that an
    environment counts as stuck, and the actor ends. `seed train` starts another."""
    connect_timeout_s: float = 30.0
    """Seconds in which a learner must answer before the actor tries again."""
    max_backoff_s: float = 30.0
    """Longest wait in seconds between two attempts to reach a learner."""
    after_run: Literal["end", "wait"] = "end"
    """"end": the actor ends, with exit code 0, once a learner tells it that its run is complete.
    "wait": it waits for the next run at the same address."""
    share_memory: bool = False
    """Pass steps to a learner at a unix socket through memory rather than gRPC. This needs a
    learner that sees the actor's processes, so it does not work between containers."""
    exit_with_parent: int | None = None
    """Id of the process that starts this actor. The actor ends when that process ends, also by
    kill -9."""
    first_step_fd: int | None = None
    """Descriptor of a pipe of the process that starts this actor. The actor writes a byte to it
    after its first step."""
    metrics_port: int | None = None
    """Serve this actor's counters to Prometheus at http://<metrics-host>:<port>/metrics.
    0: any free port. None: serve no counters."""
    metrics_host: str = "127.0.0.1"
    """Address of this machine to serve metrics at. 0.0.0.0 or :: means all addresses."""
    log_format: LogFormat = "text"
    """"text": lines for people. "json": one object a line with time, level, process and
    message, and after an error with exception."""

    def __post_init__(self) -> None:
        for address in self.addresses:
            check_address("learner", address)
            check_client_flags(address, self.tls_files, self.token_file, insecure=self.insecure)
        check_metrics_address(self.metrics_host, self.metrics_port)
        for name in ("envs_per_group", "num_groups", "env_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(expected(name, "at least 1", value))
        if self.env_workers < 0:
            raise ConfigError(expected("env_workers", "at least 0", self.env_workers))
        for name in ("env_timeout_s", "connect_timeout_s", "max_backoff_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(expected(name, "above 0", getattr(self, name)))
        if self.video is not None:
            check_video_path(self.video)
            for name in ("envs_per_group", "num_groups"):
                if getattr(self, name) not in (None, 1):
                    raise ConfigError(expected(name, "1 with video", getattr(self, name)))
            if self.env_workers:
                raise ConfigError(expected("env_workers", "0 with video", self.env_workers))

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the learners that the actor may serve."""
        return tuple(self.learner.split(","))

    @property
    def tls_files(self) -> TlsFiles:
        """The files of --tls-cert, --tls-key and --tls-ca."""
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)
