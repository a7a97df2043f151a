"""actors/answers.py: one answer of an environment; test_vectorisation.py tries many wrong ones."""

from typing import Any

import numpy as np
import pytest

from actors.answers import WrongFormError, WrongValueError, described, read_reset, read_step

_FLAGS = (False, False, {})


@pytest.mark.parametrize(
    ("reward", "wanted"),
    [(1.5, 1.5), (2, 2.0), (True, 1.0), (np.float32(0.5), 0.5), (np.ones((1, 1)), 1.0), ([3], 3.0)],
)
def test_reward_becomes_a_float(reward: Any, wanted: float) -> None:
    """Any one number is a reward, also in an array or a list."""
    _, got, *_ = read_step((0, reward, *_FLAGS))
    assert type(got) in (float, np.float64) and got == wanted


@pytest.mark.parametrize("flag", [True, 1, 1.0, np.True_, np.ones(1, bool), [1]])
def test_flag_becomes_a_bool(flag: Any) -> None:
    """1 is a flag; anything else that Python takes for true is not."""
    assert read_step((0, 0.0, False, flag, None))[2:] == (False, True)


@pytest.mark.parametrize("flag", [None, float("nan"), "", "True", [], [True, False], 2])
def test_other_flags_are_refused(flag: Any) -> None:
    """NaN and a word would count as the end of an episode, None as no end."""
    with pytest.raises(WrongFormError, match="terminated: expected a bool, got"):
        read_step((0, 0.0, flag, False, {}))


@pytest.mark.parametrize("reward", [float("nan"), np.inf, np.float64(-3.5e38), 10**39, -(10**400)])
def test_reward_that_is_infinite_in_float32_is_refused(reward: Any) -> None:
    """Rewards travel as float32."""
    with pytest.raises(WrongValueError, match="reward: expected a finite number of float32"):
        read_step((0, reward, *_FLAGS))


def test_first_observation_is_read_without_its_info() -> None:
    """The info may be missing, as long as it is clear that it is one."""
    assert read_reset((3, {"lives": 5})) == read_reset([3, None]) == 3


def test_long_answers_are_cut_in_messages() -> None:
    """A message names type and size, and only the beginning of the value."""
    text = described(list(range(1000)))
    assert text.startswith("list of 1000 [0, 1, 2") and text.endswith("...") and len(text) < 110
    assert described(np.zeros((3, 2), np.uint8)) == "an array uint8[3, 2]"
