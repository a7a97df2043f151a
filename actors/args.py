"""The flags of `seed actor`, checked."""

import dataclasses
from pathlib import Path
from typing import Literal

from seed.errors import ConfigError, expected


@dataclasses.dataclass(frozen=True, kw_only=True)
class ActorArgs:
    """Steps environments for a learner, which tells the actor what to run."""

    learner: str
    """Address of the learner: "host:port" or "unix:/path"."""
    role: Literal["train", "eval"] = "train"
    """"train": steps are trained on. "eval": acts greedily, nothing is stored."""
    envs_per_group: int | None = None
    """Environments stepped and sent together; None: what the learner asks for."""
    num_groups: int | None = None
    """Groups, of which one steps while the others wait for their actions; None:
    what the learner asks for."""
    env_threads: int = 1
    """Threads that step one group, for environments that can use them (ALE/*)."""
    video: Path | None = None
    """Write the first full episode to this mp4 file; runs one environment only."""
    connect_timeout_s: float = 30.0
    """Seconds in which a learner must answer before the actor tries again."""
    max_backoff_s: float = 30.0
    """Longest wait between two attempts to reach a learner that is away."""
    exit_with_parent: bool = False
    """End when the process that started this actor ends, however it does."""

    def __post_init__(self) -> None:
        _check_address(self.learner)
        for name in ("envs_per_group", "num_groups", "env_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(expected(name, "at least 1", value))
        for name in ("connect_timeout_s", "max_backoff_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(expected(name, "above 0", getattr(self, name)))
        if self.video is not None:
            for name in ("envs_per_group", "num_groups"):
                if getattr(self, name) not in (None, 1):
                    raise ConfigError(expected(name, "1 with video", getattr(self, name)))


def _check_address(address: str) -> None:
    if address.startswith("unix:") and len(address) > len("unix:"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ConfigError(expected("learner", '"host:port" or "unix:/path"', repr(address)))
