"""docs/troubleshooting.md: every symptom on the page is what a test expects."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/troubleshooting.md"

# The first and the last column: | `what is seen` | ... | [test_name](../tests/x/test_y.py) |
_ROW = re.compile(r"^\| (?P<seen>.+?) \|.*\| \[(?P<test>\w+)\]\(\.\./(?P<file>[^)]+)\) \|$")


def rows(page: str) -> list[str]:
    """Returns the lines of the page's tables, without the tables' heads."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith(("| You see |", "| ---"))]


def strings_of(file: Path, test: str) -> list[str]:
    """Returns the strings in a test, its decorators and the constants of its file.

    Returns none if the file has no such test. A pattern counts as the text that it matches.
    """
    module = ast.parse(file.read_text())
    named = [n for n in ast.walk(module) if isinstance(n, ast.FunctionDef) and n.name == test]
    constants = [node for node in module.body if isinstance(node, ast.Assign)]
    return [
        node.value.replace("\\", "")
        for part in (*named, *(constants if named else ()))
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def problem_of(row: str) -> str | None:
    """Returns what is wrong with a row of the page; None if its test expects what it quotes."""
    match = _ROW.match(row)
    if match is None:
        return "the row does not end with a link to a test"
    file = ROOT / match["file"]
    strings = strings_of(file, match["test"]) if file.exists() else []
    if not strings:
        return f"there is no test {match['test']} in {match['file']}"
    quoted = re.findall(r"`([^`]+)`", match["seen"])
    if not quoted:
        return "the row quotes nothing"
    for part in (part.strip() for quote in quoted for part in quote.split("…")):
        if not any(part in string for string in strings):
            return f"{match['test']} does not expect {part!r}"
    return None


def test_every_symptom_is_what_a_test_expects() -> None:
    """Each row quotes what is seen, and the test it links to has those words."""
    problems = {row: problem for row in rows(PAGE.read_text()) if (problem := problem_of(row))}
    assert not problems, "\n".join(f"{problem}: {row}" for row, problem in problems.items())


def test_right_row_is_accepted() -> None:
    """Words on both sides of an ellipsis stand in the test that the row names."""
    row = "| `left … right` | why | what | [test_right_row_is_accepted](../tests/{}) |"
    assert problem_of(row.format(Path(__file__).name)) is None


@pytest.mark.parametrize(
    ("seen", "test", "problem"),
    [
        ("`left`", "test_that_is_gone", "there is no test test_that_is_gone"),
        ("`left … wrong`", "test_right_row_is_accepted", "does not expect 'wrong'"),
        ("left", "test_right_row_is_accepted", "quotes nothing"),
    ],
)
def test_wrong_row_is_found(seen: str, test: str, problem: str) -> None:
    """A row of a test that is gone, with words that its test does not have, or with none."""
    row = f"| {seen} | why | what | [{test}](../tests/{Path(__file__).name}) |"
    assert problem in (problem_of(row) or "")


def test_row_without_a_link_is_found() -> None:
    """Every row names its test."""
    assert "does not end with a link" in (problem_of("| `left` | why | what |") or "")
