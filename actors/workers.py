"""Environments stepped by worker processes, for those that take milliseconds a step.

Used by an `EnvGroup`, in the actor's main thread (`seed actor --env-workers`). Each worker is
a process that runs `_serve`. Leaves replacing environments that fail to `SyncVectorEnv`.
"""

import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from actors.client import LONGEST_WAIT_S
from actors.parent import when_ended
from actors.vectorisation import SyncVectorEnv
from seed import interrupts
from seed.errors import EnvironmentFailedError, SeedError, require
from seed.logs import forward_log, take_record
from seed.search_path import spawn
from seed.stdout import write_whole_lines

# Seconds in which all workers must end a step, close their environments and exit.
_CLOSE_GRACE_S = 5.0


class WorkerVectorEnv(VectorEnv):
    """E environments in NEXT_STEP autoreset, shared out to W worker processes.

    Drawn for 5 environments and 2 workers:

        actor      step -> actions[0:3] and actions[3:5]      wait for both -> batch
        worker 0           steps environments 0, 1 and 2      answers
        worker 1           steps environments 3 and 4         answers

    The episodes are the same as those of a `SyncVectorEnv` with the same seed and actions.
    What a worker logs, the actor logs. An error in a worker is raised here with the worker's
    traceback as a note; after it the object can only be closed.
    """

    def __init__(
        self,
        make_env: Callable[[], gymnasium.Env],
        num_envs: int,
        num_workers: int,
        *,
        first_index: int = 0,
    ) -> None:
        """Starts the workers, which make their environments at the same time.

        Args:
          make_env: returns one environment; is pickled.
          num_envs: E, environments that step together.
          num_workers: W, at most E.
          first_index: number of the first environment, in messages.

        Raises:
          ConfigError: more workers than environments, or what `make_env` raises of these.
          EnvironmentFailedError: a worker ended, or its environments cannot be made.
        """
        super().__init__()
        wanted = f"at most envs_per_group ({num_envs})"
        require(num_workers <= num_envs, "env_workers", wanted, num_workers)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._workers: list[_Worker] = []
        try:
            for rows in np.array_split(np.arange(num_envs), num_workers):
                share = slice(int(rows[0]), int(rows[-1]) + 1)
                self._workers.append(_Worker(make_env, share, first_index + share.start))
            made = [worker.receive() for worker in self._workers]
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = made[0]
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._worker_spaces = [
            batch_space(self.single_observation_space, worker.num_envs) for worker in self._workers
        ]

    @property
    def failures(self) -> int:
        """Environments replaced so far."""
        return sum(worker.failures for worker in self._workers)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Resets all environments, the i-th with `seed` + i; returns (observation, {})."""
        for worker in self._workers:
            offset_seed = None if seed is None else seed + worker.share.start
            worker.send("reset", {"seed": offset_seed, "options": options})
        return self._batched(worker.receive()[0] for worker in self._workers), {}

    def step(
        self, actions: np.ndarray
    ) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Steps all environments; resets those whose episode ended with the last step.

        Returns:
          observation (batched), rewards float64 [E], terminated bool [E],
          truncated bool [E], {}. Infos are not passed on.

        Raises:
          EnvironmentFailedError: a worker ended, or an environment keeps failing.
        """
        for worker in self._workers:
            worker.send("step", {"actions": actions[worker.share]})
        answers = [worker.receive() for worker in self._workers]
        observations, *columns, _ = zip(*answers, strict=True)
        rewards, terminated, truncated = (np.concatenate(column) for column in columns)
        return self._batched(observations), rewards, terminated, truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """Ends the workers; kills those that do not close their environments in time."""
        for worker in self._workers:
            worker.hang_up()
        give_up = time.monotonic() + _CLOSE_GRACE_S
        for worker in self._workers:
            worker.end(max(0.0, give_up - time.monotonic()))

    def _batched(self, observations: Iterable[Any]) -> Any:
        """Returns the workers' observations, batches each, as one batch."""
        space = self.single_observation_space
        rows = itertools.chain.from_iterable(
            iterate(worker_space, observation)
            for worker_space, observation in zip(self._worker_spaces, observations, strict=True)
        )
        return concatenate(space, list(rows), create_empty_array(space, self.num_envs))


class _Worker:
    """The actor's end of one worker process, which steps environments `share` of the group."""

    def __init__(
        self, make_env: Callable[[], gymnasium.Env], share: slice, first_index: int
    ) -> None:
        self.share = share
        self.failures = 0
        """Environments replaced so far."""
        self.num_envs = share.stop - share.start
        # Not "fork": the actor has threads of gRPC.
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        make_envs = functools.partial(
            SyncVectorEnv, make_env, self.num_envs, first_index=first_index
        )
        name = f"env-worker-{share.start}-{share.stop - 1}"
        self._process = spawn(context, _serve, (far_end, make_envs), name=name)
        # The worker's copy is then the only one, so that the pipe ends with the worker.
        far_end.close()

    def send(self, method: str, arguments: dict[str, Any]) -> None:
        """Asks for a call of the worker's `SyncVectorEnv`."""
        try:
            self._pipe.send((method, arguments))
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> Any:
        """Waits for the answer of the last call; the first one is the worker's two spaces."""
        try:
            while True:
                while not self._pipe.poll(LONGEST_WAIT_S):
                    pass
                message = self._pipe.recv()
                if isinstance(message, SeedError):
                    raise message
                if not isinstance(message, logging.LogRecord):
                    answer, self.failures = message
                    return answer
                take_record(message)
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def hang_up(self) -> None:
        """Tells the worker to end, after the step that it may be in."""
        self._pipe.close()

    def end(self, timeout_s: float) -> None:
        """Waits for the worker to end, and kills it after `timeout_s`."""
        self._process.join(timeout_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ended(self) -> EnvironmentFailedError:
        self._process.join(LONGEST_WAIT_S)
        code = self._process.exitcode
        how = f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return EnvironmentFailedError(
            f"{self._process.name} (process {self._process.pid}), which steps environments "
            f"{self.share.start} to {self.share.stop - 1} of its group, {how}"
        )


def _serve(pipe: Connection, make_envs: Callable[[], SyncVectorEnv]) -> None:
    """Runs a worker: makes its environments, then answers calls until the actor hangs up."""
    # A terminal sends Ctrl-C to all processes, systemd SIGTERM; the actor ends its workers.
    # Not SIG_IGN: a simulator that an environment starts would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    write_whole_lines()
    _end_with_actor()
    interrupts.let_through()
    sending = threading.Lock()

    def send(message: Any) -> None:
        with sending:  # an environment may log from a thread of its own
            pipe.send(message)

    forward_log(send)
    try:
        with contextlib.closing(make_envs()) as envs:
            send(((envs.single_observation_space, envs.single_action_space), 0))
            while (call := _next_call(pipe)) is not None:
                method, arguments = call
                send((getattr(envs, method)(**arguments), envs.failures))
    except Exception as error:
        with contextlib.suppress(OSError):  # the actor may have gone
            send(_portable_error(error))


def _end_with_actor() -> None:
    """Ends this process some time after its actor, even if an environment hangs then."""

    def end() -> None:
        time.sleep(_CLOSE_GRACE_S)  # mostly `_next_call` has returned None before
        os.kill(os.getpid(), signal.SIGKILL)

    actor = multiprocessing.parent_process()
    assert actor is not None and actor.pid is not None, "this is a process of its own"
    when_ended(actor.pid, end)


def _next_call(pipe: Connection) -> tuple[str, dict[str, Any]] | None:
    """Waits for what the actor asks for; None once it has hung up or was killed."""
    try:
        return pipe.recv()
    except (EOFError, OSError):
        return None


def _portable_error(error: Exception) -> SeedError:
    """Returns the error to raise in the actor, with this process's traceback as a note."""
    portable = error if isinstance(error, SeedError) else EnvironmentFailedError(repr(error))
    # A wrong answer has no cause: nothing was raised where it came from.
    if portable is error and isinstance(error, EnvironmentFailedError) and not error.__cause__:
        return error
    portable.add_note(f"In an environment worker:\n{''.join(traceback.format_exception(error))}")
    return portable
