"""No source file can run code that it reads: no pickle, and no other loader of code.

Found in the syntax tree, so that neither comments nor clever spacing matter.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted(
    file for name in ("seed", "actors", "learner", "tools") for file in (ROOT / name).rglob("*.py")
)

# Modules that run what they read, or are made to write it.
FORBIDDEN_MODULES = frozenset(
    {
        "pickle",
        "_pickle",
        "cPickle",
        "pickletools",
        "dill",
        "cloudpickle",
        "joblib",
        "shelve",
        "marshal",
    }
)

# Functions that are safe only with a keyword of this value; the last part of their names.
SAFE_ONLY_WITH = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}

# Functions that are never safe.
NEVER = frozenset({"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load"})


def violations(source: str) -> Iterator[str]:
    """Yields the parts of `source` that could run what they read."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                modules = [module, *(f"{module}.{alias.name}" for alias in names)]
            case ast.Call():
                yield from _bad_call(node)
                continue
            case _:
                continue
        yield from (name for name in modules if FORBIDDEN_MODULES & set(name.split(".")))


def _bad_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
    if name in NEVER:
        yield name
    if name in SAFE_ONLY_WITH:
        keyword, value = SAFE_ONLY_WITH[name]
        if keywords.get(keyword) != str(value):
            yield name
    elif (
        keywords.get("allow_pickle", "False") != "False" or keywords.get("weights_only") == "False"
    ):
        yield name


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_no_source_can_run_what_it_reads(file: Path) -> None:
    """Checkpoints of strangers, messages and configs are data."""
    assert list(violations(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "is_bad"),
    [
        ("import pickle", True),
        ("def f():\n    from pickle import loads", True),
        ("from multiprocessing.reduction import pickle", True),
        ("import torch\ntorch.load(file)", True),
        ("torch.load(file, weights_only=False)", True),
        ("torch.load(file, weights_only=flag)", True),
        ("torch.load(file, map_location='cpu', weights_only=True)", False),
        ("np.load(file)", True),
        ("np.load(file, allow_pickle=True)", True),
        ("np.load(file, allow_pickle=False)", False),
        ("numpy.lib.format.read_array(file, allow_pickle=True)", True),
        ("yaml.load(text, Loader=yaml.Loader)", True),
        ("yaml.safe_load(text)", False),
        ("eval(text)", True),
        ("network.eval()", False),
        ("safetensors.torch.load(data)", False),
        ("'import pickle'", False),
    ],
)
def test_every_door_is_seen(source: str, is_bad: bool) -> None:
    """A check that cannot fail proves nothing."""
    assert bool(list(violations(source))) is is_bad
