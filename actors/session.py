"""An actor's life: ask for a task, make environments, stream, and begin again.

Runs in the actor's main thread. Environments take long to make, so they are kept when the
connection is lost; their episodes are not. Leaves flags and exit codes to `main.py`.
"""

import logging
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from actors.args import ActorArgs
from actors.client import LONGEST_WAIT_S, PolicyStream, fetch_task, open_channel
from actors.envs import decode_settings, make_group, make_video_group
from actors.group import EnvGroup
from actors.life_signs import LifeSigns
from actors.loop import PolicyConnection, run_loop
from actors.metrics import ActorMetrics, CountedConnection
from actors.parent import FirstStepTold
from seed.channel import access_problem
from seed.env_config import EnvConfig
from seed.errors import LearnerUnavailableError, RunCompleteError
from seed.pb import inference_pb2 as pb
from seed.security import load_security
from seed.wire import Hello

_FIRST_BACKOFF_S = 0.5


class _Work(NamedTuple):
    """The part of a task that the environments depend on: an equal one keeps them."""

    env: EnvConfig
    envs_per_group: int
    num_groups: int


class ActorSession:
    """Serves one of the learners in `args.addresses`, with one set of environments.

    run: +-> GetTask -> environments (kept if they fit) -> Act -> loop --+
         |                                                              |
         +------ wait, twice as long each time, up to max_backoff_s <---+
                 (no learner there: try the next; the run is complete: end, or wait for the
                 next run; any other error ends the actor)
    """

    def __init__(self, args: ActorArgs) -> None:
        """Raises ConfigError: a file cannot be read, or the metrics' port cannot be used."""
        self._args = args
        # In random order, so that the actors of a fleet spread over the learners.
        self._addresses = deque(random.sample(args.addresses, len(args.addresses)))
        self._security = load_security(args.tls_files, args.token_file)
        self._role = pb.ROLE_TRAIN if args.role == "train" else pb.ROLE_EVAL
        self._run_id = uuid.uuid4().hex
        self._work: _Work | None = None
        self._groups: list[EnvGroup] = []
        self._delays_s = backoff_delays_s(args.max_backoff_s)
        self._is_between_runs = False
        self._metrics: ActorMetrics | None = None
        if args.metrics_port is not None:
            self._metrics = ActorMetrics(args.metrics_host, args.metrics_port)

    @property
    def address(self) -> str:
        """Address of the learner that the actor serves now, or tries to reach."""
        return self._addresses[0]

    def run(self, stop: threading.Event) -> None:
        """Steps environments until `stop` is set, or until the learner's run is complete.

        Raises:
          AccessError: the learner wants another token, certificate or TLS setting.
          SeedError: any other error, except that no learner can be reached.
        """
        while not stop.is_set():
            try:
                self._serve(stop)
            except RunCompleteError as error:
                if self._args.after_run == "end":
                    logging.info("%s; this actor ends", error)
                    return
                self._wait_for_next_run(error, stop)
            except LearnerUnavailableError as error:
                if problem := access_problem(self.address, self._security):
                    raise problem from error
                self._addresses.rotate(-1)
                delay_s = next(self._delays_s)
                if not self._is_between_runs:
                    logging.warning("%s; reconnecting in %.1f s", error, delay_s)
                _wait(stop, delay_s)

    def _wait_for_next_run(self, error: RunCompleteError, stop: threading.Event) -> None:
        if not self._is_between_runs:
            logging.info("%s; waiting for the next run at %s", error, self._args.learner)
        self._is_between_runs = True
        _wait(stop, next(self._delays_s))

    def close(self) -> None:
        """Closes the environments and stops serving metrics."""
        self._close_groups()
        if self._metrics is not None:
            self._metrics.close()

    def _close_groups(self) -> None:
        for group in self._groups:
            group.close()
        self._groups = []
        self._work = None

    def _serve(self, stop: threading.Event) -> None:
        args, security = self._args, self._security
        with open_channel(self.address, security=security) as channel:
            task = fetch_task(channel, self._role, args.connect_timeout_s, security)
        self._prepare(task)
        hello = Hello(
            run_id=self._run_id,
            role=self._role,
            group_sizes=tuple(group.num_envs for group in self._groups),
            spec=self._groups[0].spec,
        )
        with (
            open_channel(self.address, hello, security) as channel,
            PolicyStream(
                channel,
                hello,
                args.connect_timeout_s,
                security,
                shares_memory=args.share_memory,
            ) as stream,
        ):
            logging.info(
                "connected to run %s at %s: %s, %d environments in %d groups",
                stream.welcome.run_name,
                self.address,
                task.env_id,
                sum(hello.group_sizes),
                len(hello.group_sizes),
            )
            self._delays_s = backoff_delays_s(args.max_backoff_s)
            self._is_between_runs = False
            self._run_loop(stream, stop)

    def _run_loop(self, stream: PolicyStream, stop: threading.Event) -> None:
        connection: PolicyConnection = stream
        if self._args.first_step_fd is not None:
            connection = FirstStepTold(stream, self._args.first_step_fd)
        with LifeSigns(self._groups, stream, env_timeout_s=self._args.env_timeout_s):
            if self._metrics is None:
                run_loop(self._groups, connection, stop)
                return
            with self._metrics.connected(sum(group.num_envs for group in self._groups)):
                run_loop(self._groups, CountedConnection(connection, self._metrics), stop)

    def _prepare(self, task: pb.Task) -> None:
        """Makes the task's environments, unless those of the last task fit."""
        video = self._args.video
        work = _Work(
            env=decode_settings(task.env_id, task.env_settings_json),
            envs_per_group=1 if video else self._args.envs_per_group or task.envs_per_group,
            num_groups=1 if video else self._args.num_groups or task.num_groups,
        )
        if work == self._work:
            return
        self._close_groups()
        if video:
            self._groups = [make_video_group(work.env, video, base_seed=task.base_seed)]
        else:
            for index in range(work.num_groups):
                group = make_group(
                    work.env,
                    index=index,
                    num_envs=work.envs_per_group,
                    base_seed=task.base_seed,
                    num_threads=self._args.env_threads,
                    num_workers=self._args.env_workers,
                )
                self._groups.append(group)
        self._work = work


def _wait(stop: threading.Event, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while (left_s := give_up - time.monotonic()) > 0:
        if stop.wait(min(left_s, LONGEST_WAIT_S)):
            return


def backoff_delays_s(longest_s: float) -> Iterator[float]:
    """Yields seconds to wait: doubling up to `longest_s`, each 50 to 100 % of that.

    The jitter keeps a thousand actors from coming back at the same instant.
    """
    delay_s = min(_FIRST_BACKOFF_S, longest_s)
    while True:
        yield delay_s * random.uniform(0.5, 1.0)
        delay_s = min(2 * delay_s, longest_s)
