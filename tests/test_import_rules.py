"""The import rules of the packages: what may be imported where.

Read from the source, so that imports inside functions count too; and tried in a
fresh interpreter in which the forbidden packages do not exist.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
ENVIRONMENT_LIBRARIES = ("gymnasium", "ale_py", "cv2", "av", "pygame")

# The command line hands over to a role's main, and `seed.train` to the learner's. They alone may
# name the other packages, which are imported where they are called.
COMMAND_LINE = Path("seed/cli.py")
DOORS = (COMMAND_LINE, Path("seed/__init__.py"))


class Rule(NamedTuple):
    """Names that no module of a package may import."""

    package: str
    forbidden: tuple[str, ...]
    """Modules that may not be imported, nor any name in them."""
    excepted: tuple[str, ...] = ()
    """Names below them that may be imported."""


RULES = (
    # Both sides share it, and an actor's machine has no torch.
    Rule("seed", ("torch", "actors", "learner", "seed_bench", *ENVIRONMENT_LIBRARIES)),
    Rule("actors", ("torch", "learner", "seed_bench")),
    # Scripts and instruments come with no tests, and nothing is built on an instrument but the
    # command line's `seed bench` and `seed load`.
    Rule("tools", ("seed_bench", "tests")),
    Rule("docker", ("seed_bench", "tests")),
    Rule("seed_bench", ("tools", "tests")),
    # It builds its networks from the actors' specs.
    Rule("learner", ("actors", "seed_bench", *ENVIRONMENT_LIBRARIES)),
    # Flags are parsed before anything heavy is loaded.
    Rule("learner.config", ("torch", "learner"), ("learner.config",)),
    # Neighbours that never import each other: they meet in `weights` one way, in `experience`
    # the other.
    Rule("learner.acting", ("learner.training", "learner.experience", "learner.serving")),
    Rule("learner.training", ("learner.acting", "learner.serving")),
    Rule(
        "learner.experience",
        ("learner.acting", "learner.training", "learner.serving", "learner.agents"),
    ),
    Rule("learner.serving", ("learner.training", "learner.experience", "learner.agents", "torch")),
    # One way: main -> trainer, inference -> agents -> networks, algos. The record of
    # a step, which all speak of, stands below them.
    Rule("learner.algos", ("learner",), ("learner.algos", "learner.config", "learner.records")),
    Rule(
        "learner.networks",
        ("learner",),
        ("learner.networks", "learner.algos", "learner.config", "learner.records"),
    ),
    Rule(
        "learner.agents",
        ("learner",),
        (
            "learner.agents",
            "learner.networks",
            "learner.algos",
            "learner.config",
            "learner.experience",  # an agent makes its own
            "learner.records",
        ),
    ),
    Rule("learner.device", ("learner",), ("learner.device", "learner.config", "learner.records")),
)


class Import(NamedTuple):
    """One imported name, with its module: "torch.nn" for `from torch import nn`."""

    name: str
    line: int
    is_lazy: bool
    """Whether the import runs only in a call, or stands for type checkers alone."""


def imports_of(source: str, package: str) -> Iterator[Import]:
    """Yields every import in `source`, a module of `package`, at any place."""
    tree = ast.parse(source)
    blocks = [n for n in ast.walk(tree) if _is_lazy_block(n)]
    lazy = {id(node) for block in blocks for node in ast.walk(block)}
    for node in ast.walk(tree):
        for name in _names_imported_by(node, package):
            yield Import(name, getattr(node, "lineno", 0), id(node) in lazy)


def _is_lazy_block(node: ast.AST) -> bool:
    is_typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return is_typing or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def _names_imported_by(node: ast.AST, package: str) -> list[str]:
    match node:
        case ast.Import():
            return [alias.name for alias in node.names]
        case ast.ImportFrom():
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            module = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            return [f"{module}.{alias.name}" for alias in node.names]
        case ast.Call(
            func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            return [name]
    return []


def within(name: str, modules: tuple[str, ...]) -> bool:
    """Tells whether `name` is one of `modules` or in one of them."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def violations(rule: Rule, source: str, path: Path) -> list[str]:
    """Returns "file:line imports name" for each import in `source` that breaks `rule`."""
    return [
        f"{path}:{found.line} imports {found.name}"
        for found in imports_of(source, ".".join(path.parent.parts))
        if within(found.name, rule.forbidden)
        and not within(found.name, rule.excepted)
        and not (
            path in DOORS
            and found.is_lazy
            and within(found.name, ("actors", "learner", "seed_bench"))
        )
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.package)
def test_no_module_imports_what_its_package_must_not(rule: Rule) -> None:
    """Every file of the package, imports inside functions included."""
    files = sorted((ROOT / rule.package.replace(".", "/")).rglob("*.py"))
    assert files
    broken = [
        violation
        for file in files
        for violation in violations(rule, file.read_text(encoding="utf-8"), file.relative_to(ROOT))
    ]
    assert broken == []


@pytest.mark.parametrize(
    ("source", "breaks"),
    [
        ("import torch", True),
        ("import torch.nn as nn", True),
        ("from torch.nn import functional", True),
        ("def f():\n    import torch", True),
        ("if TYPE_CHECKING:\n    from torch import Tensor", True),
        ("importlib.import_module('torch')", True),
        ("from learner import metrics", True),
        ("from ..learner import metrics", True),
        ("import torchless", False),
        ("from . import torch", False),
        ("name = 'torch'", False),
    ],
)
def test_every_way_to_import_is_seen(source: str, breaks: bool) -> None:
    """The rules find each of them; a check that cannot fail proves nothing."""
    rule = Rule("actors", ("torch", "learner"))
    assert bool(violations(rule, source, Path("actors/x.py"))) is breaks


def test_command_line_may_name_the_roles_only_inside_functions() -> None:
    """Else `seed actor` would load torch."""
    rule = Rule("seed", ("torch", "learner"))
    lazy = "def train():\n    from learner.main import main"
    assert violations(rule, lazy, COMMAND_LINE) == []
    typed = "if TYPE_CHECKING:\n    from learner.policy import Policy"
    assert violations(rule, typed, Path("seed/__init__.py")) == []
    assert violations(rule, lazy, Path("seed/config.py"))
    assert violations(rule, "from learner.main import main", COMMAND_LINE)
    assert violations(rule, "def train():\n    import torch", COMMAND_LINE)


def modules_of(package: str) -> list[str]:
    """Returns the dotted names of the package's modules, `__main__` left out."""
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]


@pytest.mark.parametrize(
    ("packages", "absent"),
    [
        (("seed",), ("torch", "actors", "learner", *ENVIRONMENT_LIBRARIES)),
        (("seed", "actors"), ("torch", "learner", "safetensors", "tensorboard", "rich")),
        (("seed", "learner"), ("actors", *ENVIRONMENT_LIBRARIES)),
    ],
    ids=["seed", "actors", "learner"],
)
def test_package_imports_where_the_others_are_not_installed(
    packages: tuple[str, ...], absent: tuple[str, ...]
) -> None:
    """An actor's machine has no torch, and a learner's has no environments."""
    modules = [module for package in packages for module in modules_of(package)]
    program = (
        "import importlib, sys\n"
        f"sys.modules.update(dict.fromkeys({absent!r}))\n"  # an import of None fails
        f"for name in {modules!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
