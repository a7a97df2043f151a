"""Command lines of the roles that take a preset, and the choice of the run's directory.

Imports no torch unless the agent or the preset is of another package. Used by `seed learner`,
`seed train` and their tests.
"""

import copy
import dataclasses
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import tyro

from learner.config.agent_config import config_class_of
from learner.config.earlier_runs import RUNS, check_is_run, no_run
from learner.config.preset_page import check_preset_comes_first, list_of_presets, page_of_preset
from learner.config.presets import find_preset, full_preset_name
from learner.config.resuming import not_new, run_to_resume
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.config.torchrun import place_from_environment
from seed.addresses import check_address, check_metrics_address
from seed.command_line import HELP_FLAGS, parse
from seed.errors import ConfigError, expected, require
from seed.help_page import Page
from seed.logs import LogFormat
from seed.security import TlsFiles, check_cert_and_key
from seed.video_path import check_video_path


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnerArgs:
    """Flags of `seed learner`."""

    config: RunConfig
    run_dir: Path | None = None
    """Directory of the run's files. By default a new one, runs/<preset>-<time>; with --resume
    the newest directory of that form."""
    resume: bool = False
    """Resume the run's newest checkpoint, with the run's own config except for the flags
    given now. The run starts from the beginning if --run-dir holds no checkpoint yet. Preset,
    agent and environment must be those of the run."""
    listen: tuple[str, ...] = ("127.0.0.1:50051",)
    """Addresses to serve actors on: host:port (port 0: any free one) or unix:PATH.
    If torchrun starts several learners on a machine, these are the addresses of the first. The
    others use the following ports, or the path with their number appended."""
    tls_cert: Path | None = None
    """Speak TLS at the host:port addresses: PEM file of the learner's certificate."""
    tls_key: Path | None = None
    """PEM file of the certificate's private key."""
    tls_ca: Path | None = None
    """Mutual TLS: let in only actors with a certificate that this PEM file vouches for."""
    token_file: Path | None = None
    """Accept only calls that carry the token in this file; health checks need none."""
    insecure: bool = False
    """Allow addresses beyond this machine without TLS or without a token: anyone who
    reaches them can read along, or act as an actor."""
    linger_s: float = 0.0
    """Seconds that the learner of a complete run stays, to tell actors that were away that they
    can end: as many as their --max-backoff-s. Connected actors are told at once."""
    metrics_port: int | None = None
    """Serve the newest report to Prometheus at http://<metrics-host>:<port>/metrics;
    0: any free port. None: not at all."""
    metrics_host: str = "127.0.0.1"
    """Address of this machine to serve metrics at; 0.0.0.0 or :: for all addresses. Metrics
    show how the run goes, and are neither encrypted nor protected."""
    log_format: LogFormat = "text"
    """"text": lines for people. "json": one object a line, with time, level, process, message
    and, after an error, exception; there is no live view then."""
    json: bool = False
    """Print only the final report on stdout, as one JSON object."""

    def __post_init__(self) -> None:
        check_cert_and_key(self.tls_files)
        # A CA without a certificate would ask actors for certificates on a connection without TLS.
        if self.tls_ca is not None:
            require(self.tls_cert is not None, "tls_cert", "a file, with --tls-ca", None)
        require(self.linger_s >= 0, "linger_s", "0 or more", self.linger_s)
        for address in self.listen:
            check_address("listen", address, any_port=True)
        check_metrics_address(self.metrics_host, self.metrics_port)

    @property
    def tls_files(self) -> TlsFiles:
        """The files of --tls-cert, --tls-key and --tls-ca."""
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArgs(LearnerArgs):
    """Flags of `seed train`."""

    listen: tuple[str, ...] = ()
    """Further addresses to serve actors on: host:port or unix:PATH. The local actors
    have a private socket of their own."""
    num_actors: int = 1
    """Actor processes to start on this machine."""
    share_memory: bool = True
    """Let the local actors pass their steps through memory rather than gRPC (Linux)."""
    env_workers: int = 0
    """Processes with which each local actor steps a group, for slow environments: see
    `seed actor --help`. 0: the actor steps them itself."""
    env_timeout_s: float = 600.0
    """Longest time in seconds that a step or reset of one group may take. After that an
    environment counts as stuck, and another actor takes the place of this one."""
    num_eval_actors: int = 0
    """Further actor processes that only evaluate, for eval/return_mean in the reports.
    Each plays 4 environments greedily with the newest weights. Their steps are neither
    trained on nor counted, but take CPU time from the training actors."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("num_actors", "env_workers", "num_eval_actors"):
            require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        require(self.env_timeout_s > 0, "env_timeout_s", "above 0", self.env_timeout_s)
        num_envs = self.num_actors * self.config.actor.num_envs
        wanted = f"at least the {num_envs} environments of the local actors"
        max_envs = self.config.inference.max_envs
        require(max_envs >= num_envs, "max_envs", wanted, max_envs)


# Environments that `seed eval` steps side by side by default.
DEFAULT_EVAL_ENVS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalArgs:
    """Greedy full games from a checkpoint."""

    run: tyro.conf.Positional[Path]
    """A run directory, or the directory of one checkpoint."""
    checkpoint: str | None = None
    """Checkpoint of a run directory: "latest", "best" (see --keep-best of `seed train`) or a
    learner step. None: "latest"."""
    episodes: int = 20
    """Full games to play."""
    num_envs: int = 0
    """Environments stepped side by side; 0: 8, or as many as there are games."""
    max_episode_steps: int | None = None
    """Env steps after which a game is cut, for environments whose games need not end. None: as
    in the run's training."""
    device: str = "auto"
    """"auto" (CUDA where there is one), "cpu", "cuda", ..."""
    rng_seed: int = 0
    """Seed of the environments."""
    video: Path | None = None
    """Write the first game to this .mp4 (H.264) or .webm (VP9) file; steps one environment
    only."""
    json: bool = False
    """Print only one JSON object on stdout."""

    def __post_init__(self) -> None:
        require(self.episodes >= 1, "episodes", "at least 1", self.episodes)
        require(self.num_envs >= 0, "num_envs", "0 or more", self.num_envs)
        steps = self.max_episode_steps
        require(steps is None or steps >= 1, "max_episode_steps", "at least 1", steps)
        if self.video is not None:
            check_video_path(self.video)
            require(self.num_envs in (0, 1), "num_envs", "1 with --video", self.num_envs)

    @property
    def num_envs_used(self) -> int:
        """Environments stepped side by side."""
        if self.video is not None:
            return 1
        return min(self.num_envs or DEFAULT_EVAL_ENVS, self.episodes)


Args = TypeVar("Args", bound=LearnerArgs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DecidingFlags:
    """The flags that decide which config, and so which other flags, a command line has."""

    agent: str | None = None
    run_dir: Path | None = None
    resume: bool = False


def parse_preset(cls: type[Args], command: str, argv: Sequence[str]) -> tuple[str, Args]:
    """Returns (preset, arguments) of `seed <command> PRESET [flags]`.

    The run directory in the arguments is None for a new directory with a default name. Exits as
    argparse does on --help, on flags that do not exist and on values that cannot work.

    Raises:
      ConfigError: no such preset or agent, or a run directory that does not fit.
    """
    if not argv or argv[0] in HELP_FLAGS:
        print(list_of_presets(command))
        raise SystemExit(0 if argv else 2)
    check_preset_comes_first(command, argv)
    name, flags = full_preset_name(argv[0]), argv[1:]
    preset = find_preset(name)
    prog = f"seed {command} {name}"
    given = _deciding_flags(prog, flags)
    config, run_dir, resumed = _with_agent(preset.config, given.agent), None, None
    if not HELP_FLAGS & set(flags):
        run_dir = _find_run_dir(name, given.run_dir, resume=given.resume)
        if given.resume and run_dir is not None:
            resumed = run_to_resume(run_dir)
            config = resumed.config_for(name, given.agent) if resumed is not None else config
    args = parse(
        cls,
        flags,
        prog=prog,
        page=page_of_preset(command, name, preset.help),
        default=cls(config=config),
    )
    if resumed is not None:
        resumed.check(args.config)
    return name, dataclasses.replace(args, run_dir=run_dir and run_dir.path)


def _with_agent(config: RunConfig, algorithm: str | None) -> RunConfig:
    """Returns `config` with another algorithm. None or the present algorithm changes nothing.

    An agent of the same config class keeps the values of the fields; any other agent gets its
    own defaults. The result is not checked, because the flags may still make it valid.
    """
    if algorithm is None or algorithm == config.agent.algorithm:
        return config
    agent_config = config_class_of(algorithm)
    if type(config.agent) is agent_config:
        agent = dataclasses.replace(config.agent, algorithm=algorithm)
    else:
        agent = agent_config(algorithm=algorithm)
    changed = copy.copy(config)
    object.__setattr__(changed, "agent", agent)
    return changed


def _deciding_flags(prog: str, flags: Sequence[str]) -> _DecidingFlags:
    without_help = [flag for flag in flags if flag not in HELP_FLAGS]
    return tyro.cli(_DecidingFlags, prog=prog, args=without_help, return_unknown_args=True)[0]


_EVAL_PAGE = Page(
    usage="seed eval RUN [flags]",
    examples=("seed eval runs/mine", "seed eval runs/mine --episodes 100 --json"),
)


def parse_eval(argv: Sequence[str]) -> EvalArgs:
    """Returns the arguments of `seed eval RUN [flags]`; exits as `parse_preset` does."""
    if not argv:
        print(f"seed eval: {no_run('RUN', 'nothing')}", file=sys.stderr)
        raise SystemExit(2)
    args = parse(EvalArgs, argv, prog="seed eval", page=_EVAL_PAGE)
    check_is_run("RUN", args.run)
    return args


def stem_of(preset: str) -> str:
    """Returns what the default names of a preset's run directories begin with."""
    return re.sub(r"[^\w.-]", "-", preset)


def _find_run_dir(preset: str, path: Path | None, *, resume: bool) -> RunDir | None:
    """Returns the directory that the flags name; None for a new one with a default name."""
    place, stem = place_from_environment(), stem_of(preset)
    if path is None and place.size > 1:
        raise ConfigError(expected("run_dir", "one for all learners of torchrun", "none"))
    if path is None and resume:
        earlier = [path.parent for path in RUNS.glob(f"{stem}-[0-9]*/checkpoints")]
        if not earlier:
            raise ConfigError(expected("resume", f"an earlier run {RUNS}/{stem}-<time>", "none"))
        return RunDir(max(earlier, key=lambda path: path.stat().st_mtime))
    if path is None:
        return None
    run_dir = RunDir(path)
    if not resume and not place.rank and run_dir.has_results:
        raise not_new(run_dir)
    return run_dir
