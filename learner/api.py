"""Training as a function: what `seed train` does, for Python programs.

    result = train(PRESETS["cartpole-vtrace"].config, run_dir="runs/mine")
    policy = load_policy(result.run_dir)

Blocks the main thread of the calling program until the run is complete. On a CPU training has a
process of its own, which imports the calling script again: call `train` below
`if __name__ == "__main__":`.
"""

from pathlib import Path
from typing import NamedTuple

from learner.concurrency.stop_request import StopRequest
from learner.config.args import TrainArgs
from learner.config.resuming import NO_PRESET, run_to_resume
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.config.torchrun import Place
from learner.local_actors import ActorProcesses
from learner.main import run
from seed.errors import ConfigError, expected


class TrainResult(NamedTuple):
    """A run that is complete or was stopped."""

    run_dir: Path
    """Directory of the config, metrics and checkpoints; `load_policy` takes it, with
    checkpoint="best" for the best one."""
    report: dict[str, float]
    """The last report: metrics by name, as in metrics.jsonl."""


def train(
    config: RunConfig,
    *,
    run_dir: Path | str,
    num_actors: int = 1,
    env_workers: int = 0,
    num_eval_actors: int = 0,
    resume: bool = False,
) -> TrainResult:
    """Trains with actors of this machine until the budget is spent.

    Ctrl-C and SIGTERM save a checkpoint and end the run early. The log goes to Python's
    `logging`; nothing is printed. Call it from the main thread.

    Args:
      config: all settings of the run.
      run_dir: directory of the run's files; new, unless `resume`.
      num_actors: actor processes to start.
      env_workers: processes with which each of them steps a group, for slow environments.
      num_eval_actors: further actor processes that only evaluate.
      resume: go on from the newest checkpoint in `run_dir`, if there is one, with `config`.

    Raises:
      SeedError: an error that the caller can fix. Another learner may use `run_dir`, which then
        stays as it is.
      Exception: an exception of one of the learner's threads.
    """
    directory = RunDir(Path(run_dir))
    resumed = run_to_resume(directory) if resume else None
    if resumed is not None:
        resumed.check(config)
    if not resume and directory.has_results:
        raise ConfigError(expected("run_dir", "a new directory, or resume", directory.path))
    args = TrainArgs(
        config=config,
        run_dir=directory.path,
        resume=resume,
        num_actors=num_actors,
        env_workers=env_workers,
        num_eval_actors=num_eval_actors,
    )
    actors = ActorProcesses(
        num_actors,
        num_eval_actors=num_eval_actors,
        extra_args=("--env-workers", str(env_workers)),
        ingress_processes=config.learner.ingress_processes,
        share_memory=args.share_memory,
    )
    with StopRequest() as stop:
        ended = run(NO_PRESET, args, actors, Place(), stop, has_terminal=False)
    return TrainResult(ended.run_dir.path, ended.report)
