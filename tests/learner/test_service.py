"""The service builds what acts once, for the first actor, and closes its parts in order."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from learner.acting.batcher import Batcher
from learner.concurrency.stopping import Stopped
from learner.config.run_config import InferenceConfig
from learner.reporting.metrics import Metrics
from learner.service import Acting, Service, ServingConfig
from learner.serving.reception import Reception
from seed.errors import IncompatibleError, LearnerUnavailableError, SpecError
from seed.pb import inference_pb2 as pb
from seed.specs import EnvSpec
from tests.learner.builders import TIMEOUT_S, WatchedLock, env_spec, in_thread
from tests.learner.serving.support import INVALID, SPEC, FakeActor, FakeInference, first, hello

ALL_STOPPED = ["server closed", "batcher closed", "acting stopped", "acting joined"]


class LoggedBatcher(Batcher):
    """Logs when it is closed."""

    def __init__(self, log: list[str]) -> None:
        super().__init__(InferenceConfig(min_fill=0))
        self._log = log

    def close(self) -> None:
        super().close()
        self._log.append("batcher closed")


class LoggedActing(FakeInference):
    """Logs each call."""

    def __init__(self, batcher: Batcher, log: list[str]) -> None:
        self.failures: list[BaseException] = []
        super().__init__(batcher, self.failures.append)
        self._log = log

    def start(self) -> None:
        self._log.append("acting started")
        super().start()

    def stop(self) -> None:
        self._log.append("acting stopped")

    def join(self) -> None:
        super().join()
        self._log.append("acting joined")


class FakeServer:
    """Serves no actor; a test calls the reception itself."""

    pids: list[int] = [7]

    def __init__(self, reception: Reception, log: list[str]) -> None:
        self.reception = reception
        self._log = log

    def start(self) -> list[str]:
        self._log.append("server started")
        return ["here"]

    def complete(self) -> None:
        self._log.append("told that the run is complete")

    def close(self) -> None:
        self._log.append("server closed")


class Served:
    """A service whose parts write a log; `admit` does what its server does for an actor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spec: EnvSpec | None = None) -> None:
        self.log: list[str] = []
        self.failures: list[BaseException] = []
        self.built: list[EnvSpec] = []
        self.before_build: Callable[[EnvSpec], object] = lambda spec: None
        self._servers: list[FakeServer] = []
        monkeypatch.setattr("learner.service.make_server", self._make_server)
        self.service = Service(
            ServingConfig(),
            name="a-run",
            make_task=pb.Task,
            build=self._build,
            on_failure=self.failures.append,
            metrics=Metrics(),
            spec=spec,
            batcher=LoggedBatcher(self.log),
        )

    def admit(self, spec: EnvSpec) -> str:
        """Admits an actor, and returns the run's name."""
        (server,) = self._servers
        return server.reception.admit(spec)

    def _make_server(self, reception: Reception, *_: object, **__: object) -> FakeServer:
        self._servers.append(FakeServer(reception, self.log))
        return self._servers[-1]

    def _build(self, spec: EnvSpec, batcher: Batcher) -> Acting:
        self.built.append(spec)
        self.before_build(spec)
        return LoggedActing(batcher, self.log)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A service that has been started."""
    served = Served(monkeypatch)
    assert served.service.start(["anywhere"]) == ["here"]
    yield served
    served.service.close()


def test_parts_close_in_the_order_in_which_they_feed_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps end first, then batches; then acting does not wait for training either."""
    served = Served(monkeypatch)
    served.service.start(["anywhere"])
    assert served.admit(SPEC) == "a-run"
    served.service.close()
    assert served.log == ["server started", "acting started", *ALL_STOPPED]
    assert not served.failures


def test_complete_run_is_told_while_nothing_acts_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server stays, for actors that come back, until the service is closed."""
    served = Served(monkeypatch)
    served.service.start(["anywhere"])
    served.admit(SPEC)
    served.log.clear()
    served.service.complete()
    told = ["told that the run is complete", "batcher closed", "acting stopped", "acting joined"]
    assert served.log == told
    with pytest.raises(LearnerUnavailableError, match="the learner has ended"):
        served.admit(SPEC)
    served.service.close()
    assert served.log == [*told, "server closed", "batcher closed"]


def test_service_without_an_actor_closes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing acts yet, and nothing serves before `start`."""
    served = Served(monkeypatch)
    served.service.close()
    assert served.log == ["batcher closed"]
    served = Served(monkeypatch)
    served.service.start(["anywhere"])
    served.service.close()
    assert served.log == ["server started", "server closed", "batcher closed"]


def test_service_shows_its_environment_and_processes(served: Served) -> None:
    """Environment and inference thread show from the first actor on, the processes at once."""
    assert (served.service.spec, served.service.is_built) == (None, False)
    assert served.service.ingress_pids == [7]
    served.admit(SPEC)
    assert (served.service.spec, served.service.is_built) == (SPEC, True)


def test_later_actors_have_the_environment_of_the_first(served: Served) -> None:
    """Actors of other environments are refused, and nothing is built for them."""
    served.admit(SPEC)
    served.admit(SPEC)
    with pytest.raises(IncompatibleError, match=r"this run's action.num_values: expected 4, got 5"):
        served.admit(env_spec(num_actions=5))
    assert served.built == [SPEC]
    assert not served.failures


def test_environment_that_is_known_before_binds_the_first_actor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a restart the checkpoint is of that environment."""
    served = Served(monkeypatch, spec=SPEC)
    served.service.start(["anywhere"])
    with pytest.raises(IncompatibleError, match=r"action.num_values"):
        served.admit(env_spec(num_actions=5))
    assert served.built == []
    served.admit(SPEC)
    assert served.built == [SPEC]
    served.service.close()


def test_actor_whose_spec_nothing_can_be_built_for_is_refused_alone(served: Served) -> None:
    """The run goes on, and the next actor may have another environment."""

    def refuse(spec: EnvSpec) -> None:
        if spec != SPEC:
            raise SpecError("no network for it")

    served.before_build = refuse
    with pytest.raises(SpecError, match="no network for it"):
        served.admit(env_spec(num_actions=5))
    assert (served.service.spec, served.service.is_built) == (None, False)
    assert served.admit(SPEC) == "a-run"
    assert served.service.spec == SPEC
    assert not served.failures


def test_error_while_building_ends_the_service(served: Served) -> None:
    """The actor is not to blame: memory may be short, or the checkpoint may not fit."""
    error = MemoryError("no room")

    def fail(spec: EnvSpec) -> None:
        raise error

    served.before_build = fail
    with pytest.raises(MemoryError, match="no room"):
        served.admit(SPEC)
    assert served.failures == [error]
    assert not served.service.is_built


def test_actors_that_come_at_once_are_built_for_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second actor waits until the network of the first is there, and shares it."""
    monkeypatch.setattr(served.service, "_admission", lock := WatchedLock())
    building, go_on = threading.Event(), threading.Event()

    def build_slowly(spec: EnvSpec) -> None:
        building.set()
        assert go_on.wait(TIMEOUT_S)

    served.before_build = build_slowly
    admitted: list[Future[str]] = [in_thread(served.admit, SPEC)]
    assert building.wait(TIMEOUT_S)
    admitted.append(in_thread(served.admit, SPEC))
    for _ in range(2):
        assert lock.asked.acquire(timeout=TIMEOUT_S)
    assert not any(future.done() for future in admitted)
    go_on.set()
    assert [future.result(TIMEOUT_S) for future in admitted] == ["a-run"] * 2
    assert served.built == [SPEC]
    assert served.log.count("acting started") == 1


def test_closing_waits_for_what_is_being_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the inference thread would act after the end; later actors are told to retry."""
    served = Served(monkeypatch)
    served.service.start(["anywhere"])
    building, go_on = threading.Event(), threading.Event()

    def build_slowly(spec: EnvSpec) -> None:
        building.set()
        assert go_on.wait(TIMEOUT_S)

    served.before_build = build_slowly
    admitted = in_thread(served.admit, SPEC)
    assert building.wait(TIMEOUT_S)
    closed = in_thread(served.service.close)
    go_on.set()
    closed.result(TIMEOUT_S)
    assert admitted.result(TIMEOUT_S) == "a-run"
    assert served.log[-1] == "acting joined"
    with pytest.raises(LearnerUnavailableError, match="the learner has ended"):
        served.admit(SPEC)


def test_actors_are_served_over_grpc(tmp_path: Path) -> None:
    """A refused actor gets the reason, the next is served, and closing ends its stream."""
    log: list[str] = []
    failures: list[BaseException] = []

    def build(spec: EnvSpec, batcher: Batcher) -> Acting:
        if spec != SPEC:
            raise SpecError("no network for it")
        return LoggedActing(batcher, log)

    service = Service(
        ServingConfig(inference=InferenceConfig(min_fill=0)),
        name="a-run",
        make_task=pb.Task,
        build=build,
        on_failure=failures.append,
        metrics=Metrics(),
        batcher=(batcher := LoggedBatcher(log)),
    )
    (address,) = service.start([f"unix:{tmp_path / 'sock'}"])
    refused, welcome = FakeActor(address), FakeActor(address)
    refused.send(hello(1, spec=env_spec(num_actions=5)))
    assert refused.status() == (INVALID, "no network for it")
    assert welcome.say_hello(2).run_name == "a-run"
    assert welcome.act(first(2, value=3)).actions
    assert service.ingress_pids == []
    service.close()
    with pytest.raises(Stopped):
        batcher.next_batch()
    for actor in (refused, welcome):
        actor.close()
    assert log == ["acting started", "batcher closed", "acting stopped", "acting joined"]
    assert not failures
