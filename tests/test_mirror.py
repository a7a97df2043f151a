"""Tests stand where their module stands: learner/x/y.py has tests/learner/x/test_y.py.

A module with several files of tests has test_y_<aspect>.py beside it. What departs from that
is listed here, with the reason. Also what `make smoke` runs is there.
"""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("seed", "actors", "learner", "seed_bench", "tools")

# Tests of how several modules work together -> those that have no other test.
TESTED_TOGETHER = {
    # Every environment keeps one contract.
    "tests/actors/test_env_contract.py": (),
    # Every optimiser that a config can name, against its closed form.
    "tests/learner/algos/test_optimizers.py": ("learner/algos/rmsprop.py",),
    # One rng_seed, one row of losses: both ends of training, with all that feeds them.
    "tests/learner/training/test_reproducible.py": (),
    # Settings of the torsos that every algorithm must bear.
    "tests/learner/networks/test_compile.py": (),
    "tests/learner/networks/test_precision.py": (),
    # Sessions on a thread and in ingress processes, through a real server.
    "tests/learner/serving/test_session.py": (
        "learner/serving/backend.py",
        "learner/serving/factory.py",
        "learner/serving/transport.py",
    ),
    # Whole ingress processes, made, killed and replaced.
    "tests/learner/serving/ingress/test_handle.py": (
        "learner/serving/ingress/link.py",
        "learner/serving/ingress/main.py",
        "learner/serving/ingress/ports.py",
    ),
    # A whole chaos run.
    "tests/seed_bench/chaos/test_main.py": (
        "seed_bench/chaos/faults.py",
        "seed_bench/chaos/fleet.py",
        "seed_bench/chaos/garbage.py",
        "seed_bench/chaos/visitor.py",
    ),
    # A whole load, of which this is the learner's process.
    "tests/seed_bench/test_load.py": ("seed_bench/parts/loaded_learner.py",),
    # Both kinds of link are tested side by side, to the same effect.
    "tests/seed_bench/studies/test_links.py": (
        "seed_bench/links/packet_link.py",
        "seed_bench/links/proxy_link.py",
    ),
}

# Modules that need no test of their own.
UNTESTED = {
    # A protocol and named tuples.
    "learner/training/base.py",
    # One exception class.
    "learner/concurrency/stopping.py",
    # CUDA only: `make test ARGS="-m gpu"` reaches them through learner/acting.
    "learner/device/cuda_recorder.py",
    "learner/device/cuda_streams.py",
    "learner/device/cuda_uploader.py",
}


def _modules() -> set[str]:
    """Returns the modules that are to have tests, as paths from the root."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    named = (path for path in paths if path.name not in ("__init__.py", "__main__.py"))
    return {str(path.relative_to(ROOT)) for path in named if path.parent.name != "pb"}


def _test_files() -> list[str]:
    """Returns the files of tests that stand below a package's name, as paths from the root."""
    paths = (path for name in PACKAGES for path in (ROOT / "tests" / name).rglob("test_*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in paths)


def _module_of(test_file: str, modules: set[str]) -> str | None:
    """Returns the module of tests/x/test_y.py or tests/x/test_y_<aspect>.py, the longest y."""
    path = Path(test_file).relative_to("tests")
    words = path.stem.removeprefix("test_").split("_")
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    candidates = (str(path.with_name(f"{name}.py")) for name in names)
    return next((module for module in candidates if module in modules), None)


@pytest.mark.parametrize("test_file", _test_files())
def test_every_file_of_tests_stands_beside_its_module(test_file: str) -> None:
    """Or is listed with the modules that it tests together."""
    assert test_file in TESTED_TOGETHER or _module_of(test_file, _modules()), (
        f"{test_file}: expected to be named after a module, or in TESTED_TOGETHER"
    )


def test_every_module_has_tests() -> None:
    """A list that names a module with tests, or none that exists, is out of date."""
    modules = _modules()
    tested = {_module_of(test_file, modules) for test_file in _test_files()}
    together = {module for names in TESTED_TOGETHER.values() for module in names}
    assert modules - tested == together | UNTESTED


def test_files_that_test_modules_together_exist() -> None:
    """Else what they are said to test is not tested."""
    assert set(TESTED_TOGETHER) <= set(_test_files())


def test_smoke_names_tests_that_exist() -> None:
    """They are a list in the Makefile, where nobody would see that one was moved."""
    text = (ROOT / "Makefile").read_text().replace("\\\n", "")
    (line,) = (line for line in text.splitlines() if line.startswith("SMOKE := "))
    for name in line.removeprefix("SMOKE := ").split():
        path, _, function = name.partition("::")
        assert (ROOT / path).exists(), name
        assert not function or f"def {function}(" in (ROOT / path).read_text(), name
