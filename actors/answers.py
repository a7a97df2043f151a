"""What one environment answers to `reset` and `step`, checked before it reaches a batch.

Called by `ReplacedOnError` for each environment, and by `CheckedVectorEnv` for all of a group.
Leaves observations to `observations.py`, and what follows from a wrong answer to the caller.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from seed.errors import expected

# Networks compute in float32: a larger number would be infinite there.
FLOAT32_MAX = float(np.finfo(np.float32).max)

_GYMNASIUM_API = "reset() -> (observation, info) and step() -> 5 values, as in Gymnasium"
_NO_OBSERVATION = expected("observation", "a member of observation_space", "None")
_MOST_SHOWN = 80


class WrongAnswerError(Exception):
    """An environment returned what cannot be used; the text says what was expected and got."""


class WrongFormError(WrongAnswerError):
    """The answer has a wrong type or shape. Usually every answer of that code has it."""


class WrongValueError(WrongAnswerError):
    """The answer has the right form, and holds a number on which nothing may be trained."""


# One environment's answer to `step`: observation, reward, terminated, truncated. A plain tuple,
# because a named one takes as long again as all the checks here.
Step = tuple[Any, float, bool, bool]


def read_reset(answer: Any) -> Any:
    """Returns the observation of a `reset`; raises WrongFormError."""
    # An observation of two elements has the same length, so the info is looked at, too.
    is_pair = isinstance(answer, (tuple, list)) and len(answer) == 2
    if not is_pair or not (answer[1] is None or isinstance(answer[1], Mapping)):
        raise WrongFormError(expected("reset()", _GYMNASIUM_API, described(answer)))
    if answer[0] is None:
        raise WrongFormError(_NO_OBSERVATION)
    return answer[0]


def read_step(answer: Any) -> Step:
    """Returns what a `step` returned, with a float reward and bool flags.

    Raises:
      WrongFormError: not five values, no observation, or a reward or flag of a wrong type.
      WrongValueError: a reward that is not finite in float32.
    """
    # The usual answer, in half the time that all checks take.
    if type(answer) is tuple and len(answer) == 5:
        observation, reward, terminated, truncated, _ = answer
        if (
            type(reward) is float
            and -FLOAT32_MAX <= reward <= FLOAT32_MAX
            and type(terminated) is bool
            and type(truncated) is bool
            and observation is not None
        ):
            return observation, reward, terminated, truncated
    return _read_unusual_step(answer)


def _read_unusual_step(answer: Any) -> Step:
    if not isinstance(answer, (tuple, list)) or len(answer) != 5:
        raise WrongFormError(expected("step()", _GYMNASIUM_API, described(answer)))
    observation, reward, terminated, truncated, _ = answer
    if observation is None:
        raise WrongFormError(_NO_OBSERVATION)
    reward = _number(reward)
    if not -FLOAT32_MAX <= reward <= FLOAT32_MAX:
        raise WrongValueError(expected("reward", "a finite number of float32", reward))
    return observation, reward, _flag("terminated", terminated), _flag("truncated", truncated)


def described(value: Any) -> str:
    """Returns type, size and beginning of a value, short enough for a message."""
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    text = repr(value)
    if len(text) > _MOST_SHOWN:
        text = f"{text[:_MOST_SHOWN]}..."
    size = f" of {len(value)}" if isinstance(value, (tuple, list, Mapping)) else ""
    return f"{type(value).__name__}{size} {text}"


def _number(reward: Any) -> float:
    """Returns a number, also from an array or list that holds just one."""
    if isinstance(reward, (int, float)):
        return _float(reward)
    number = _only_element(reward)
    if number is None:
        raise WrongFormError(expected("reward", "a number", described(reward)))
    return _float(number)


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:  # an int beyond float64
        return math.inf if number > 0 else -math.inf


def _flag(field: str, flag: Any) -> bool:
    """Returns a bool, also from 0 or 1 and from an array that holds just one element."""
    if isinstance(flag, (bool, np.bool_)):
        return bool(flag)
    number = _only_element(flag)
    if number is None or number not in (0, 1):
        raise WrongFormError(expected(field, "a bool", described(flag)))
    return bool(number)


def _only_element(value: Any) -> Any:
    """Returns the one number in `value`; None if there are others, or it is no number."""
    try:
        array = np.asarray(value)
    except Exception:  # ragged lists, and arrays of other libraries that refuse
        return None
    return array.item() if array.size == 1 and array.dtype.kind in "biuf" else None
