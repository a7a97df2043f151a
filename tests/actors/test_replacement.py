"""actors/replacement.py: one environment's restarts; test_vectorisation.py has those of several."""

from typing import Any

import pytest

from actors.replacement import MAX_FAILURES_IN_A_ROW, ReplacedOnError
from seed.errors import EnvironmentFailedError, SpecError
from tests.actors.odd_envs import Fragile


def test_step_after_an_end_resets() -> None:
    """It ignores its action and carries neither reward nor flags."""
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
    """A simulator that fell over holds no memory while its successor runs."""

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
    assert env.step(0) == (1, 0.0, False, True)
    assert [one.is_closed for one in made] == [True, False]
    assert env.failures == 1


def test_giving_up_names_environment_and_step() -> None:
    """Where a simulator falls over is the first thing that its author asks."""
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
    """A new learner's first step is not taken for the end of the old one's episode."""
    env = ReplacedOnError(lambda: Fragile(fails_at=0, ends_at=1), index=0)
    env.reset()
    assert env.step(0)[2]
    assert env.reset() == 0
    assert env.step(0) == (1, 1.0, True, False)


def test_reward_that_is_no_number_is_a_failure() -> None:
    """It is the environment's fault, not that of the batch that it would go to."""

    class Rewardless(Fragile):
        def step(self, action: int) -> tuple[Any, Any, bool, bool, dict]:
            return 0, None, False, False, {}

    env = ReplacedOnError(lambda: Rewardless(fails_at=0), index=0)
    env.reset()
    assert env.step(0) == (0, 0.0, False, True)
    assert env.failures == 1


@pytest.mark.parametrize("where", ["reset", "step"])
def test_errors_of_seed_pass(where: str) -> None:
    """What a user can mend is told at once; a new environment would not cure it."""

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
