"""The learner process: read the config, build, serve and train, close, report.

Runs in the main thread of `seed learner` and `seed train`, which differ only in
whether local actors are started beside it.
"""

import contextlib
import functools
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from learner.acting.observers import make_observers
from learner.agents.registry import check_classes
from learner.checkpoint import Checkpoint, load_checkpoint, was_ever_saved
from learner.complete_run import is_complete, report_of, telling_actors
from learner.concurrency.stop_request import StopRequest
from learner.config.args import LearnerArgs
from learner.config.config_file import dump_config
from learner.config.resuming import run_to_resume
from learner.config.run_dir import RunDir
from learner.config.torchrun import Place, local_address, place_from_environment
from learner.device.setup import check_can_compile, device_of, set_up_torch
from learner.last_words import last_words
from learner.local_actors import LocalActors
from learner.reporting.live_view import LiveView
from learner.reporting.prometheus import PrometheusSink
from learner.reporting.rank_reports import RankReports
from learner.reporting.sinks import JsonlSink, LogSink, Sink, SteadySink
from learner.reporting.tensorboard import TensorBoardSink
from learner.run_claim import RunClaim, writes_to
from learner.runtime import Learner
from learner.serving.listening import check_listen_addresses
from learner.training.ranks import Ranks
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import SeedError, exit_code_of
from seed.logs import json_log
from seed.security import Security, load_security
from seed.stdout import print_json

_LOG = logging.getLogger(__name__)

# Seconds between two looks at the local actors, in the time between reports.
_TICK_S = 0.5


class Ended(NamedTuple):
    """A run that is complete or was stopped."""

    run_dir: RunDir
    report: dict[str, float]
    """The last report: metrics by name."""
    was_complete: bool = False
    """Whether there was nothing left to do when it was resumed."""


def run_learner(preset: str, args: LearnerArgs, actors: LocalActors | None = None) -> int:
    """Serves and trains until the budget is spent or a signal comes; returns the exit code.

    Returns 0 when the run is complete or was asked to stop, 1 when a thread failed (its
    traceback goes to stderr), 2 when the log is JSON and a setting cannot work. A run that was
    complete before is 0 too: a supervisor that starts failed learners again would else do so for
    ever.

    Raises:
      SeedError: an error that the user can fix, before or during the run. If the log is
        JSON, the error is logged and not raised.
    """
    place = place_from_environment()
    log = json_log(_name_of(place)) if args.log_format == "json" else contextlib.nullcontext()
    try:
        with log:
            ended = run(preset, args, actors, place, StopRequest(), has_terminal=True)
    except Exception as error:
        if args.log_format == "json":
            return exit_code_of(error)  # logged already
        if isinstance(error, SeedError):
            raise
        traceback.print_exception(error)
        return 1
    if args.json and not place.rank:
        print_json({**ended.report, "run_dir": os.fspath(ended.run_dir.path)})
    elif not place.rank:
        _print(_last_words(ended, args))
    return 0


def _print(message: str) -> None:
    """Prints to stdout, if that is still there: the user may have closed the terminal."""
    try:
        print(message, flush=True)
    except OSError:
        # Else Python would try to write it again when it ends, and report another exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _name_of(place: Place) -> str:
    return "learner" if place.size == 1 else f"learner {place.rank}"


def run(
    name: str,
    args: LearnerArgs,
    actors: LocalActors | None,
    place: Place,
    stop: StopRequest,
    *,
    has_terminal: bool,
) -> Ended:
    """Serves and trains until the budget is spent or a stop is requested.

    Args:
      name: of the preset, for the run's directory and its config.yaml.
      args: as parsed.
      actors: of this machine, started and ended with the run.
      place: of this learner among those that train together.
      stop: checked from time to time.
      has_terminal: whether the log and the live view may use this process's terminal.

    Raises:
      SeedError: an error that the user can fix; other exceptions come from the learner's threads.
        A start that fails leaves no files.
    """
    with contextlib.ExitStack() as stack:
        if actors is not None:
            stack.callback(actors.close)
        check_classes(args.config)
        addresses, security = _check_serving(args, actors, place)
        device = _set_up_device(args, place)
        claim = RunClaim(name, args, place, is_stopped=lambda: stop.requested)
        stack.callback(claim.close)
        checkpoint = _find_checkpoint(claim.run_dir, args)
        if checkpoint is not None and is_complete(checkpoint, args.config):
            return _end_complete_run(claim.run_dir, checkpoint, args, addresses, security, stop)
        write_config = _config_writer(name, args, claim.run_dir, place)
        merge = RankReports(place).merge
        sinks = stack.enter_context(
            _sinks(claim.run_dir, args, checkpoint, place, has_terminal=has_terminal)
        )
        note_idle_settings(name, args.config.env)
        learner = Learner(
            args.config,
            run_dir=claim.run_dir,
            device=device,
            checkpoint=checkpoint,
            ranks=Ranks(place),
            observers=make_observers(args.config.learner.observers, claim.run_dir.path),
            on_built=write_config,
        )
        try:
            _start(learner, addresses, security)
            claim.keep()
            _serve(learner, actors, claim, lambda: _report(learner, merge, sinks), stop)
        finally:
            _close(learner, actors, lambda: _linger(args.linger_s, stop))
            final = _report(learner, merge, sinks)
    if learner.failure is not None:
        raise learner.failure
    return Ended(claim.run_dir, final)


def note_idle_settings(preset: str, env: EnvConfig) -> None:
    """Says that an environment takes none of the Atari settings that were made for it."""
    if not env.is_atari and (preset.startswith("atari-") or env.atari != AtariConfig()):
        _LOG.warning(
            "%s is no game of ALE/*: frame skip, screen size, sticky actions and the other flags "
            "of Atari do nothing for it",
            env.env_id,
        )


def _check_serving(
    args: LearnerArgs, actors: LocalActors | None, place: Place
) -> tuple[tuple[str, ...], Security]:
    """Returns the addresses to listen at, and who may call; raises as `run`."""
    addresses = tuple(local_address(address, place) for address in args.listen)
    if actors is not None:
        addresses += (actors.address,)
    security = load_security(args.tls_files, args.token_file)
    check_listen_addresses(addresses, security, insecure=args.insecure)
    return addresses, security


def _set_up_device(args: LearnerArgs, place: Place) -> torch.device:
    learner_config = args.config.learner
    device = set_up_torch(
        device_of(place, learner_config.device),
        torch_threads=learner_config.torch_threads,
        train_threads=learner_config.train_threads,
    )
    if learner_config.compile:
        check_can_compile(device)
    return device


def _find_checkpoint(run_dir: RunDir, args: LearnerArgs) -> Checkpoint | None:
    directory = run_dir.checkpoints
    return load_checkpoint(directory) if args.resume and was_ever_saved(directory) else None


def _end_complete_run(
    run_dir: RunDir,
    checkpoint: Checkpoint,
    args: LearnerArgs,
    addresses: tuple[str, ...],
    security: Security,
    stop: StopRequest,
) -> Ended:
    """Returns the totals of a run that has nothing left to do; changes none of its files."""
    ended = Ended(run_dir, report_of(checkpoint), was_complete=True)
    _LOG.info("%s", _last_words(ended, args))
    if args.linger_s:
        with telling_actors(args.config, run_dir.name, addresses, security):
            _linger(args.linger_s, stop)
    return ended


def _last_words(ended: Ended, args: LearnerArgs) -> str:
    path = ended.run_dir.path
    if ended.was_complete:
        return (
            f"{path} is complete: {int(ended.report['env_steps']):,} env steps; to go on, raise "
            f"--total-env-steps, which is {args.config.learner.total_env_steps}"
        )
    return last_words(path)


def _config_writer(
    preset: str, args: LearnerArgs, run_dir: RunDir, place: Place
) -> Callable[[], None]:
    """Returns the function that writes the run's config.yaml.

    A missing config.yaml is written at once. An earlier one stays until the run is known to
    work with these flags. Of learners that train together the first writes.

    Raises:
      ConfigError: the file cannot be written.
    """
    if place.rank:
        return lambda: None
    resumed = run_to_resume(run_dir) if args.resume else None
    name = (resumed and resumed.preset) or preset
    write = functools.partial(dump_config, args.config, run_dir.config, name=name)
    if not run_dir.config.exists():
        with writes_to(run_dir.path):
            write()
    return write


@contextlib.contextmanager
def _sinks(
    run_dir: RunDir,
    args: LearnerArgs,
    checkpoint: Checkpoint | None,
    place: Place,
    *,
    has_terminal: bool,
) -> Iterator[list[Sink]]:
    """Opens the sinks of the reports, and directs the log so that it does not disturb the view.

    Of learners that train together the first has the reports of all.
    """
    with contextlib.ExitStack() as stack:
        sinks: list[Sink] = []
        if not place.rank:
            for sink in _open_sinks(run_dir, args, checkpoint, place, has_terminal=has_terminal):
                sinks.append(sink)
                stack.callback(sink.close)
        if has_terminal and args.log_format == "text":
            stack.enter_context(_text_log(sinks, _name_of(place)))
        yield sinks


def _open_sinks(
    run_dir: RunDir,
    args: LearnerArgs,
    checkpoint: Checkpoint | None,
    place: Place,
    *,
    has_terminal: bool,
) -> Iterator[Sink]:
    """Opens the sinks in turn, so that the open ones can be closed if the next one fails."""
    total = args.config.learner.total_env_steps
    resumed_at = checkpoint.state["env_steps"] if checkpoint is not None else None
    with writes_to(run_dir.path):
        metrics = JsonlSink(run_dir.metrics)
    yield SteadySink(metrics)
    with writes_to(run_dir.path):
        events = TensorBoardSink(run_dir.path, resumed_at=resumed_at, config=args.config)
    yield SteadySink(events)
    if args.metrics_port is not None:
        yield PrometheusSink(args.metrics_host, args.metrics_port)
    is_seen = has_terminal and sys.stdout.isatty() and not args.json and args.log_format == "text"
    if place.size == 1 and is_seen:
        yield LiveView(f"{run_dir.name} on {args.config.env.env_id}", total)
    else:
        yield LogSink(total, num_learners=place.size)


@contextlib.contextmanager
def _text_log(sinks: list[Sink], name: str) -> Iterator[None]:
    """Sends the log to stderr, or into the live view if there is one."""
    views = [sink for sink in sinks if isinstance(sink, LiveView)]
    handler = views[0].log_handler() if views else logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {name}: %(message)s"))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


def _start(learner: Learner, addresses: tuple[str, ...], security: Security) -> None:
    """Starts serving, and logs the addresses."""
    _LOG.info("run directory %s", learner.run_dir.path)
    if learner.counters.env_steps:
        steps = learner.counters.env_steps
        _LOG.info("resuming %s at %s env steps", learner.run_dir.path, f"{steps:,}")
    _LOG.info("listening on %s", ", ".join(learner.start(addresses, security)))


def _serve(
    learner: Learner,
    actors: LocalActors | None,
    claim: RunClaim,
    report: Callable[[], object],
    stop: StopRequest,
) -> None:
    """Reports and checks the actors until the learner has finished."""
    if actors is not None and not stop.requested:
        _LOG.info("starting local actors of %d environments each", learner.config.actor.num_envs)
        actors.start(claim.run_dir.path)
    reported_at = time.monotonic()
    while not learner.finished.wait(0 if stop.requested else _TICK_S):
        if stop.requested:
            _LOG.info("stopping: saving a checkpoint")
            return
        if claim.lost is not None:
            learner.fail(claim.lost)  # so that it saves nothing into another learner's run
            return
        if actors is not None:
            actors.check()
        now = time.monotonic()
        if now - reported_at >= learner.config.learner.report_every_s:
            report()
            reported_at = now


def _linger(seconds: float, stop: StopRequest) -> None:
    """Waits for actors that come back, so that they hear that the run is complete."""
    give_up = time.monotonic() + seconds
    if seconds:
        _LOG.info("the run is complete; telling actors that come back for %g s", seconds)
    while not stop.requested and (left_s := give_up - time.monotonic()) > 0:
        time.sleep(min(left_s, _TICK_S))


def _close(learner: Learner, actors: LocalActors | None, linger: Callable[[], None]) -> None:
    """Measures for the last time while actors are connected, then closes them and the learner."""
    try:
        learner.end_last_window()
    finally:
        if actors is not None:
            actors.close()
        learner.close(linger)


def _report(
    learner: Learner, merge: Callable[[dict[str, float]], dict[str, float]], sinks: list[Sink]
) -> dict[str, float]:
    report = merge(learner.report())
    for sink in sinks:
        sink.write(int(report["env_steps"]), report)
    return report
