"""What a word on the command line means: a name, the beginning of one, or nearly one.

Used where commands, presets and flags are looked up.
"""

import difflib
from collections.abc import Iterable


def full_name(word: str, names: Iterable[str]) -> str | None:
    """Returns the name that `word` stands for; None if it is none of them, or several.

    It stands for a name that it spells with other capitals or with "_" for "-", and for the
    only name that begins with it.
    """
    names, word = list(names), _plain(word)
    if word in names:
        return word
    beginning = [name for name in names if word and name.startswith(word)]
    return beginning[0] if len(beginning) == 1 else None


def near_names(word: str, names: Iterable[str]) -> list[str]:
    """Returns the names that may have been meant by `word`, the likeliest first."""
    names, word = list(names), _plain(word)
    parts = [name for name in names if word and _is_like(word, name)]
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.6)
    return list(dict.fromkeys([*close, *parts])) if close else parts


def _is_like(word: str, name: str) -> bool:
    return name.startswith(word) or len(word) > 2 and (word in name or name in word)


def did_you_mean(candidates: Iterable[str]) -> str:
    """Returns the end of a message that names the candidates; nothing if there are none."""
    quoted = [f"`{candidate}`" for candidate in candidates]
    return f"; did you mean {' or '.join(quoted)}?" if quoted else ""


def _plain(word: str) -> str:
    return word.strip().lower().replace("_", "-")
