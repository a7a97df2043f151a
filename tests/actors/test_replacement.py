"""actors/replacement.py restarts one environment; test_vectorisation.py restarts several."""

from typing import Any

import pytest

from actors.failures import MAX_FAILURES_IN_A_ROW
from actors.replacement import ReplacedOnError
from seed.errors import EnvironmentFailedError, SpecError
from tests.actors.odd_envs import Fragile


def test_step_after_an_end_resets() -> None:
    """The step ignores its action, and its row carries neither reward nor flags."""
    env = ReplacedOnError(lambda: Fragile(fails_at=0, ends_at=2), index=0)
    assert env.reset() == 0
    rows = [env.step(0) for _ in range(4)]
    assert rows == [
        (1, 1.0, False, False),
        (2, 1.0, True, False),
        (0, 0.0, False, False),
        (1, 1.0, False, False),
    ]


def test_failed_environment_is_closed_and_another_one_made_at_once() -> None:
    """A failed simulator frees its memory before its successor runs."""

    class Closing(Fragile):
        is_closed = False

        def close(self) -> None:
            self.is_closed = True
            raise RuntimeError("and does not even close")

    made: list[Closing] = []

    def make_env() -> Closing:
        made.append(Closing(fails_at=2))
        return made[-1]

    env = ReplacedOnError(make_env, index=0)
    env.reset()
    assert env.step(0) == (1, 1.0, False, False)
    assert env.step(0) == (None, 0.0, False, True)
    assert [one.is_closed for one in made] == [True, False]
    assert env.failures == 1


def test_giving_up_names_environment_and_step() -> None:
    """The error names the step, since the author of the simulator needs it first."""
    env = ReplacedOnError(lambda: Fragile(fails_at=3), index=7)
    env.reset()
    wanted = (
        f"environment 7 raised at step 3 of its episode, for the {MAX_FAILURES_IN_A_ROW + 1}th "
        r"time in a row: RuntimeError\('the simulator fell over'\)"
    )
    with pytest.raises(EnvironmentFailedError, match=wanted):
        for _ in range(100):
            env.step(0)


def test_reset_in_mid_episode_starts_a_new_one() -> None:
    """The first step under a new learner does not end the episode of the old learner."""
    env = ReplacedOnError(lambda: Fragile(fails_at=0, ends_at=1), index=0)
    env.reset()
    assert env.step(0)[2]
    assert env.reset() == 0
    assert env.step(0) == (1, 1.0, True, False)


def test_reward_that_is_not_a_number_is_a_failure() -> None:
    """The environment is replaced, and the reward reaches no batch."""

    class Rewardless(Fragile):
        def step(self, action: int) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, reward if self._steps < 2 else None, *rest

    env = ReplacedOnError(lambda: Rewardless(fails_at=0), index=0)
    env.reset()
    assert env.step(0) == (1, 1.0, False, False)
    assert env.step(0) == (None, 0.0, False, True)
    assert env.failures == 1


@pytest.mark.parametrize("where", ["reset", "step"])
def test_errors_of_seed_pass(where: str) -> None:
    """A user can mend these errors, and a new environment would raise them again."""

    class Refusing(Fragile):
        def reset(self, **kwargs: Any) -> tuple[Any, dict]:
            if where == "reset":
                raise SpecError("no such thing")
            return 0, {}

        def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
            raise SpecError("no such thing")

    env = ReplacedOnError(lambda: Refusing(fails_at=0), index=0)
    with pytest.raises(SpecError, match="no such thing"):
        env.reset()
        env.step(0)
    assert env.failures == 0
