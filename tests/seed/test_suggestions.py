"""Words on the command line: beginnings, other spellings, typing errors."""

import pytest

from seed.suggestions import did_you_mean, full_name, near_names

NAMES = ("train", "learner", "load", "catch-vtrace", "atari-vtrace", "atari-vtrace-cpu")


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("train", "train"),
        ("t", "train"),
        ("TRAIN", "train"),
        ("catch", "catch-vtrace"),
        ("Catch_VTrace", "catch-vtrace"),
        ("catch_", "catch-vtrace"),
        ("atari-vtrace", "atari-vtrace"),
        ("atari-vtrace-", "atari-vtrace-cpu"),
        ("l", None),
        ("atari", None),
        ("trian", None),
        ("trainx", None),
        ("", None),
        ("-", None),
    ],
)
def test_word_stands_for_the_only_name_that_it_begins(word: str, name: str | None) -> None:
    """A whole name wins over a longer one; one of several is never chosen."""
    assert full_name(word, NAMES) == name


@pytest.mark.parametrize(
    ("word", "first"),
    [
        ("trian", "train"),
        ("tarin", "train"),
        ("leaner", "learner"),
        ("l", "learner"),
        ("cach-vtrace", "catch-vtrace"),
        ("catch_v-trace", "catch-vtrace"),
        ("vtrace-cpu", "atari-vtrace-cpu"),
        ("training", "train"),
    ],
)
def test_nearest_name_comes_first(word: str, first: str) -> None:
    """Letters that are swapped, left out or added, and parts of a name."""
    assert near_names(word, NAMES)[0] == first


@pytest.mark.parametrize("word", ["", "zzz", "-"])
def test_word_like_no_name_has_no_suggestion(word: str) -> None:
    """A wrong suggestion is worse than none."""
    assert near_names(word, ("train", "learner")) == []


def test_suggestions_are_the_end_of_a_message() -> None:
    """A message without candidates stays as it is."""
    assert did_you_mean(["a", "b"]) == "; did you mean `a` or `b`?"
    assert did_you_mean([]) == ""
