"""Carries the steps of an actor on this machine without gRPC: through memory that both map.

The actor's stream stays open beside it, and carries the hello and the end. Belongs to the
server's event loop.

    actor                                                    learner
    hello, asks for memory == stream ==>                     make file and pipes
                           <== stream, first metadata ==     their paths
    step  == memory, notice ==>                              take -> Request
          <== memory, notice ==                              answer
"""

import asyncio
import os
import sys
from collections.abc import Callable

import grpc
import numpy as np

from learner.serving.session import ConnectedActor
from seed import wire
from seed.errors import SeedError, WireError, expected
from seed.step_memory import MEMORY_METADATA, make_file, map_groups, path_of
from seed.step_notices import ANSWERS, STEPS, AnswerNotice, StepNotice

# So many groups' notices fit into a pipe together, so that writing a notice never blocks.
_MAX_GROUPS = 1_000


class LocalSteps:
    """One actor's memory, from `offer` to `close`."""

    def __init__(self, hello: wire.Hello) -> None:
        self.error: SeedError | None = None
        """The actor's fault that ended the steps."""
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self._file = make_file(hello.spec, hello.group_sizes)
        self._groups = map_groups(self._file, hello.spec, hello.group_sizes)
        # This process also keeps the actor's ends open: the stream shows when the actor has ended.
        self._steps = os.pipe()
        self._answers = os.pipe()
        # A blocking write would hold up all other actors until this one reads.
        os.set_blocking(self._answers[1], False)
        self._end: Callable[[], None] | None = None

    @property
    def metadata(self) -> tuple[tuple[str, str]]:
        """Tells the actor the paths of the file and of its ends of the pipes."""
        places = (self._file, self._steps[1], self._answers[0])
        return ((MEMORY_METADATA, " ".join(map(path_of, places))),)

    def take(
        self,
        session: ConnectedActor,
        submit: Callable[[ConnectedActor, wire.EnvOutputs], None],
        fail: Callable[[], None],
    ) -> None:
        """Hands each step of the session to `submit` from now on. If the actor breaks the contract,
        `error` holds the reason and `fail` is called."""

        def receive() -> None:
            # Set at the first step only: an actor that cannot open the memory uses its stream.
            session.send = self._answer
            try:
                for notice in STEPS.read(self._steps[0]):
                    submit(session, self._read(StepNotice._make(notice)))
            except SeedError as error:
                self._refuse(error)

        self._end = fail
        self._loop.add_reader(self._steps[0], receive)

    def close(self) -> None:
        """Closes file and pipes; the actor sees that no answer will come."""
        self._loop.remove_reader(self._steps[0])
        for descriptor in (self._file, *self._steps, *self._answers):
            os.close(descriptor)

    def _answer(self, group: int, actions: np.ndarray) -> None:
        self._groups[group].answer(actions)
        try:
            ANSWERS.write(self._answers[1], [AnswerNotice(group)])
        except BlockingIOError:
            wanted = "those of a group to be read before its next step"
            self._refuse(WireError(expected("actions", wanted, "a pipe full of unread ones")))

    def _refuse(self, error: SeedError) -> None:
        """Ends the session because of its actor's fault."""
        assert self._end is not None, "steps are taken"
        if self.error is not None:
            return
        self.error = error
        self._loop.remove_reader(self._steps[0])
        self._end()

    def _read(self, notice: StepNotice) -> wire.EnvOutputs:
        """Returns a step, checked like one that came by gRPC."""
        sizes = self._hello.group_sizes
        if not 0 <= notice.group < len(sizes):
            raise WireError(expected("group", f"below {len(sizes)}", notice.group))
        if not 0 <= notice.num_episodes <= sizes[notice.group]:
            wanted = f"at most one for each of {sizes[notice.group]} environments"
            raise WireError(expected("episodes", wanted, notice.num_episodes))
        outputs = self._groups[notice.group].read(notice.num_episodes)
        wire.check_values(outputs, self._hello.spec)
        return outputs


def offer(context: grpc.aio.ServicerContext, hello: wire.Hello) -> LocalSteps | None:
    """Returns memory if the actor asks for it and is connected by a unix socket, else None."""
    asked = any(key == MEMORY_METADATA for key, _ in context.invocation_metadata() or ())
    is_here = context.peer().startswith("unix:") and sys.platform == "linux"
    if not asked or not is_here or len(hello.group_sizes) > _MAX_GROUPS:
        return None
    return LocalSteps(hello)
