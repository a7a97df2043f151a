"""The learner process: read the config, build, serve and train, close, report.

Runs in the main thread of `seed learner` and `seed train`, which differ only in
whether local actors are started beside it.
"""

import contextlib
import json
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from learner.checkpoint import Checkpoint, load_checkpoint
from learner.live_view import LiveView
from learner.rank_reports import RankReports
from learner.ranks import Ranks
from learner.runtime import Learner
from learner.server import check_listen_addresses
from learner.setup import LocalActors, StopRequest, device_of, set_up_torch
from learner.sinks import JsonlSink, LogSink, Sink, TensorBoardSink
from seed.args import LearnerArgs
from seed.config_file import dump_config
from seed.errors import SeedError
from seed.torchrun import Place, local_address, place_from_environment

_LOG = logging.getLogger(__name__)

# How often the main thread looks after local actors between two reports.
_TICK_S = 0.5


def run_learner(preset: str, args: LearnerArgs, actors: LocalActors | None = None) -> int:
    """Serves and trains until the budget is spent or a signal comes; returns the exit code.

    0 when complete or asked to stop, 1 when a thread failed (its traceback goes to
    stderr).

    Raises:
      SeedError: something the user can mend, before or during the run.
    """
    stop = StopRequest()
    assert args.run_dir is not None, "parse_preset sets it"
    place = place_from_environment()
    addresses = tuple(local_address(address, place) for address in args.listen)
    if actors is not None:
        addresses += (actors.address,)
    check_listen_addresses(addresses, insecure=args.insecure)
    config = args.config.learner
    device = set_up_torch(
        device_of(place, config.device),
        torch_threads=config.torch_threads,
        train_threads=config.train_threads,
    )
    checkpoint = _find_checkpoint(args)
    args.run_dir.mkdir(parents=True, exist_ok=True)
    if not place.rank:
        dump_config(args.config, args.run_dir / "config.yaml", name=preset)
    merge = RankReports(place).merge
    with _sinks(args, checkpoint, place) as sinks:
        learner = Learner(
            args.config,
            run_dir=args.run_dir,
            device=device,
            checkpoint=checkpoint,
            ranks=Ranks(place),
        )
        try:
            _LOG.info("run directory %s", args.run_dir)
            _serve(learner, addresses, actors, lambda: _report(learner, merge, sinks), stop)
        finally:
            if actors is not None:
                actors.close()
            learner.close()
            final = _report(learner, merge, sinks)
    if learner.failure is not None:
        if isinstance(learner.failure, SeedError):
            raise learner.failure
        traceback.print_exception(learner.failure)
        return 1
    if args.json and not place.rank:
        print(json.dumps(final | {"run_dir": os.fspath(args.run_dir)}))
    elif not place.rank:
        print(f"saved in {args.run_dir}; watch it play: seed eval {args.run_dir}")
    return 0


def _find_checkpoint(args: LearnerArgs) -> Checkpoint | None:
    assert args.run_dir is not None
    directory = args.run_dir / "checkpoints"
    if not args.resume or not directory.exists() or not any(directory.iterdir()):
        return None
    return load_checkpoint(directory)


@contextlib.contextmanager
def _sinks(args: LearnerArgs, checkpoint: Checkpoint | None, place: Place) -> Iterator[list[Sink]]:
    """Opens what reports go to, and sends the log where it does not disturb the view.

    Of learners that train together the first has the reports of all.
    """
    assert args.run_dir is not None
    run_dir: Path = args.run_dir
    total = args.config.learner.total_env_steps
    resumed_at = checkpoint.state["env_steps"] if checkpoint is not None else None
    sinks: list[Sink] = []
    if not place.rank:
        sinks.append(JsonlSink(run_dir / "metrics.jsonl"))
        sinks.append(TensorBoardSink(run_dir, resumed_at=resumed_at))
    handler: logging.Handler = logging.StreamHandler()
    if place.size == 1 and sys.stdout.isatty() and not args.json:
        view = LiveView(f"{run_dir.name} on {args.config.env.env_id}", total)
        handler = view.log_handler()
        sinks.append(view)
    elif not place.rank:
        sinks.append(LogSink(total))
    name = "learner" if place.size == 1 else f"learner {place.rank}"
    handler.setFormatter(logging.Formatter(f"%(asctime)s {name}: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield sinks
    finally:
        root.removeHandler(handler)
        for sink in sinks:
            sink.close()


def _serve(
    learner: Learner,
    addresses: tuple[str, ...],
    actors: LocalActors | None,
    report: Callable[[], object],
    stop: StopRequest,
) -> None:
    """Reports and looks after the actors until the learner has finished."""
    if learner.counters.env_steps:
        steps = learner.counters.env_steps
        _LOG.info("resuming %s at %s env steps", learner.run_dir, f"{steps:,}")
    _LOG.info("listening on %s", ", ".join(learner.start(addresses)))
    if actors is not None:
        actors.start()
    reported_at = time.monotonic()
    while not learner.finished.wait(_TICK_S):
        if stop.requested:
            _LOG.info("stopping: saving a checkpoint")
            return
        if actors is not None:
            actors.check()
        now = time.monotonic()
        if now - reported_at >= learner.config.learner.report_every_s:
            report()
            reported_at = now


def _report(
    learner: Learner, merge: Callable[[dict[str, float]], dict[str, float]], sinks: list[Sink]
) -> dict[str, float]:
    report = merge(learner.report())
    for sink in sinks:
        sink.write(int(report["env_steps"]), report)
    return report
