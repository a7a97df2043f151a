"""Building the networks for an actor takes seconds, and the server serves others meanwhile."""

import threading
from pathlib import Path

import pytest

from learner.serving.server import check_same_environment
from seed.errors import IncompatibleError
from seed.specs import EnvSpec
from tests.learner.builders import TIMEOUT_S, env_spec
from tests.learner.serving.support import SPEC, Serving, first, hello, step


def test_actor_that_leaves_during_admission_is_forgotten(
    tmp_path: Path, ingress_processes: int
) -> None:
    """It leaves while its networks are built, and its slots become free."""
    admitting, go_on = threading.Semaphore(0), threading.Event()

    def admit(spec: EnvSpec) -> str:
        admitting.release()
        assert go_on.wait(TIMEOUT_S)
        return "a-run"

    serving = Serving(tmp_path, admit, ingress_processes=ingress_processes)
    leaving, staying = serving.actor(), serving.actor()
    leaving.send(hello(5))
    assert admitting.acquire(timeout=TIMEOUT_S)
    leaving.close()
    staying.send(hello(2))
    assert admitting.acquire(timeout=TIMEOUT_S)
    go_on.set()
    assert staying.receive().welcome.envs_connected == 2
    staying.act(first(2))
    assert serving.inference.requests[-1].slots.tolist() == [0, 1]
    serving.close()


def test_steps_of_others_are_served_during_an_admission(
    tmp_path: Path, ingress_processes: int
) -> None:
    """Building networks must not block the event loop."""
    admitting, go_on = threading.Event(), threading.Event()
    calls = []

    def admit(spec: EnvSpec) -> str:
        calls.append(spec)
        if len(calls) > 1:
            admitting.set()
            assert go_on.wait(TIMEOUT_S)
        return "a-run"

    serving = Serving(tmp_path, admit, ingress_processes=ingress_processes)
    neighbour, late = serving.actor(), serving.actor()
    neighbour.start(1)
    late.send(hello(1))
    assert admitting.wait(TIMEOUT_S)
    assert neighbour.act(step(1, value=2)).actions
    go_on.set()
    assert late.receive().welcome.envs_connected == 2
    serving.close()


def test_spec_that_differs_is_refused_with_the_field() -> None:
    """The status is that of an incompatible pair, and not of a broken message."""
    check_same_environment(SPEC, env_spec())
    with pytest.raises(IncompatibleError, match="^this run's action.num_values: expected 4, got 5"):
        check_same_environment(SPEC, env_spec(num_actions=5))
