"""actors/session.py takes one set of environments through tasks, lost learners and returns."""

import dataclasses
import itertools
import logging
import threading
from pathlib import Path

import numpy as np
import pytest

import actors.session
from actors.args import ActorArgs
from actors.main import run
from actors.session import backoff_delays_s
from seed.errors import AccessError, ConfigError, RunCompleteError
from seed.security import Security
from seed.wire import EnvOutputs
from tests.actors.fake_learner import FakeLearner, serving, stay_still

_TIMEOUT_S = 20


class _Background:
    """Runs an actor in a thread of its own."""

    def __init__(self, args: ActorArgs) -> None:
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(args,), daemon=True)
        self._thread.start()

    def _run(self, args: ActorArgs) -> None:
        try:
            run(args, self._stop)
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._stop.set()
        self._thread.join(_TIMEOUT_S)
        assert not self._thread.is_alive()


def _args(address: str) -> ActorArgs:
    return ActorArgs(learner=address, max_backoff_s=0.05)


def test_actor_reconnects_after_learner_restart_with_fresh_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new learner on the same socket gets the same run id and environments, after a reset."""
    groups_made = []
    make_group = actors.session.make_group
    monkeypatch.setattr(
        actors.session, "make_group", lambda *a, **k: groups_made.append(1) or make_group(*a, **k)
    )
    address = f"unix:{tmp_path}/learner.sock"
    first, second = FakeLearner(), FakeLearner()
    with serving(first, address):
        actor = _Background(_args(address))
        assert first.stepped.wait(_TIMEOUT_S)
    with serving(second, address):
        assert second.stepped.wait(_TIMEOUT_S)
        actor.join()
    assert actor.error is None
    assert [row.group for row in second.outputs[:2]] == [0, 1]
    assert all(row.is_first.all() for row in second.outputs[:2])
    assert {hello.run_id for hello in first.hellos + second.hellos} == {first.hellos[0].run_id}
    assert len(groups_made) == 2


COMPLETE = RunCompleteError("the run is complete: it has spent its budget of env steps")


def test_actor_ends_with_its_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It says so in one line, and its process then ends with exit code 0."""
    address = f"unix:{tmp_path}/learner.sock"
    with caplog.at_level(logging.INFO), serving(FakeLearner(refusal=COMPLETE), address):
        run(_args(address), threading.Event())
    assert "the run is complete" in caplog.text
    assert "this actor ends" in caplog.text


def test_actor_may_wait_for_the_next_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is silent between the two runs, however often it finds no learner."""
    address = f"unix:{tmp_path}/learner.sock"
    args = dataclasses.replace(_args(address), after_run="wait")
    first, second = FakeLearner(refusal=COMPLETE), FakeLearner()
    with caplog.at_level(logging.INFO):
        with serving(first, address):
            actor = _Background(args)
            for _ in range(2):
                assert first.streams_ended.acquire(timeout=_TIMEOUT_S)
        with serving(second, address):
            assert second.stepped.wait(_TIMEOUT_S)
            actor.join()
    assert actor.error is None
    assert caplog.text.count("waiting for the next run") == 1
    assert "reconnecting" not in caplog.text


def test_actor_takes_up_another_task_after_learner_restart(tmp_path: Path) -> None:
    """The actor makes new environments when the new learner names others."""
    address = f"unix:{tmp_path}/learner.sock"
    second = FakeLearner("CartPole-v1")
    with serving(first := FakeLearner(), address):
        actor = _Background(_args(address))
        assert first.stepped.wait(_TIMEOUT_S)
    with serving(second, address):
        assert second.stepped.wait(_TIMEOUT_S)
        actor.join()
    assert second.hellos[0].spec.observations[0].shape == (4,)


def test_actor_waits_for_a_learner_that_is_not_there_yet(tmp_path: Path) -> None:
    """Actors may start before their learner."""
    address = f"unix:{tmp_path}/learner.sock"
    actor = _Background(_args(address))
    with serving(learner := FakeLearner(), address):
        assert learner.stepped.wait(_TIMEOUT_S)
        actor.join()
    assert actor.error is None


def test_actor_goes_on_to_the_next_of_its_learners(tmp_path: Path) -> None:
    """The actor tries its learners in turn until one answers, wherever it begins."""
    here, there = (f"unix:{tmp_path}/{name}.sock" for name in ("here", "there"))
    learner, other = FakeLearner(), FakeLearner()
    with serving(learner, here):
        with serving(other, there):
            actor = _Background(_args(f"{there},{here}"))
            while not (learner.stepped.wait(0.01) or other.stepped.wait(0.01)):
                assert actor.error is None
        assert learner.stepped.wait(_TIMEOUT_S)
        actor.join()
    assert actor.error is None


def test_every_one_of_an_actors_learners_is_checked(tmp_path: Path) -> None:
    """Else a mistake in the second address would show only when the first learner ends."""
    with pytest.raises(ConfigError, match="^learner: expected host:port .* got 'nonsense'$"):
        _args(f"unix:{tmp_path}/learner.sock,nonsense")


def test_actors_spread_over_their_learners() -> None:
    """Each actor begins with a learner that it draws by chance."""
    args = _args("127.0.0.1:1,127.0.0.1:2")
    firsts = {actors.session.ActorSession(args).address for _ in range(60)}
    assert firsts == set(args.addresses)


def test_learner_that_refuses_every_connection_ends_the_actor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting cannot cure a reason that is known, such as a wrong certificate."""
    asked = []

    def problem_of(address: str, security: Security) -> AccessError:
        asked.append(address)
        return AccessError("tls_ca: expected this, got that")

    monkeypatch.setattr(actors.session, "access_problem", problem_of)
    args = _args(f"unix:{tmp_path}/learner.sock")
    with pytest.raises(AccessError, match="tls_ca"):
        run(args, threading.Event())
    assert asked == [args.learner]


def test_user_overrides_the_group_sizes_of_the_task(tmp_path: Path) -> None:
    """The actor's flags win over the group sizes that the learner asks for."""
    address = f"unix:{tmp_path}/learner.sock"
    with serving(learner := FakeLearner(), address):
        actor = _Background(dataclasses.replace(_args(address), envs_per_group=3, num_groups=1))
        assert learner.stepped.wait(_TIMEOUT_S)
        actor.join()
    assert learner.hellos[0].group_sizes == (3,)


def test_bad_task_ends_the_actor(tmp_path: Path) -> None:
    """Settings that cannot work raise an error at once, since waiting cannot cure them."""
    address = f"unix:{tmp_path}/learner.sock"
    learner = FakeLearner(settings={"colour": "red"})
    with (
        serving(learner, address),
        pytest.raises(ConfigError, match="colour"),
    ):
        run(_args(address), threading.Event())


def test_wrong_actions_end_the_actor(tmp_path: Path) -> None:
    """An action out of range never reaches the environment."""

    def wild(outputs: EnvOutputs) -> np.ndarray:
        return stay_still(outputs) + 3

    address = f"unix:{tmp_path}/learner.sock"
    with (
        serving(FakeLearner(policy=wild), address),
        pytest.raises(ValueError, match=r"actions: expected 0 \.\. 2"),
    ):
        run(_args(address), threading.Event())


def test_backoff_doubles_with_jitter_up_to_its_cap() -> None:
    """Each delay is 50 to 100 % of 0.5, 1, 2, 4, 5, 5, ... seconds."""
    delays = list(itertools.islice(backoff_delays_s(5.0), 6))
    for delay, longest in zip(delays, (0.5, 1, 2, 4, 5, 5), strict=True):
        assert longest / 2 <= delay <= longest
