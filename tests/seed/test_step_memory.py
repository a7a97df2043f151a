"""A step that one process writes is what another reads, and no memory stays behind."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seed.specs import ArraySpec, EnvSpec
from seed.step_memory import make_file, map_groups, path_of
from seed.wire import EnvOutputs, Episode
from tests.learner.builders import GEAR, SCREEN, SPEED, env_spec

DOOR = ArraySpec(name="door", dtype="bool", shape=())
SPECS = {
    "vector": env_spec(),
    "image": env_spec(SCREEN),
    # The sizes are no multiples of any alignment.
    "mixed": env_spec(DOOR, SPEED, SCREEN, GEAR),
}
SIZES = (3, 1, 2)


def random_step(spec: EnvSpec, group: int, num_envs: int, rng: np.random.Generator) -> EnvOutputs:
    """Returns a step in which all arrays differ."""
    observations = tuple(
        rng.integers(0, 2, (num_envs, *leaf.shape)).astype(leaf.dtype) for leaf in spec.observations
    )
    is_first, terminated, truncated = rng.integers(0, 2, (3, num_envs)).astype(bool)
    return EnvOutputs(
        group=group,
        observations=observations,
        rewards=rng.normal(size=num_envs).astype(np.float32),
        is_first=is_first,
        terminated=terminated,
        truncated=truncated,
        episodes=[Episode(env, rng.normal(), int(rng.integers(100))) for env in range(num_envs)],
        failures=int(rng.integers(1, 9)),
    )


def assert_equal(outputs: EnvOutputs, expected: EnvOutputs) -> None:
    """Asserts that two steps are the same, dtypes included."""
    for field in dataclasses.fields(EnvOutputs):
        ours, theirs = getattr(outputs, field.name), getattr(expected, field.name)
        if field.name in ("group", "episodes", "failures"):
            assert ours == theirs
            continue
        leaves = (ours, theirs) if field.name == "observations" else ((ours,), (theirs,))
        for ours_leaf, theirs_leaf in zip(*leaves, strict=True):
            assert ours_leaf.dtype == theirs_leaf.dtype
            assert np.array_equal(ours_leaf, theirs_leaf), field.name


@pytest.mark.parametrize("name", SPECS)
def test_step_and_answer_come_as_they_were_written(name: str) -> None:
    """Two mappings of one file agree, and no group writes to the part of another."""
    spec, rng = SPECS[name], np.random.default_rng(0)
    file = make_file(spec, SIZES)
    written, read = (map_groups(file, spec, SIZES) for _ in range(2))
    os.close(file)
    for _ in range(3):
        steps = [random_step(spec, group, size, rng) for group, size in enumerate(SIZES)]
        counts = [memory.write(step) for memory, step in zip(written, steps, strict=True)]
        for memory, step, count in zip(read, steps, counts, strict=True):
            assert_equal(memory.read(count), step)
            memory.answer(np.arange(len(step.rewards)) + 10 * step.group)
        for memory, step in zip(written, steps, strict=True):
            assert memory.actions().tolist() == [
                10 * step.group + env for env in range(len(step.rewards))
            ]
        for memory, step, count in zip(read, steps, counts, strict=True):
            assert_equal(memory.read(count), step)


def test_step_without_episodes_does_not_show_those_before() -> None:
    """Episodes of an earlier step are still in the memory."""
    spec, rng = SPECS["vector"], np.random.default_rng(0)
    (memory,) = map_groups(make_file(spec, [2]), spec, [2])
    step = random_step(spec, 0, 2, rng)
    memory.write(step)
    assert memory.write(dataclasses.replace(step, episodes=())) == 0
    assert memory.read(0).episodes == []


def test_rewards_and_flags_are_copies_and_observations_are_not() -> None:
    """The engine reads rewards and flags after the answer, when the next step may be there."""
    spec, rng = SPECS["mixed"], np.random.default_rng(0)
    (memory,) = map_groups(make_file(spec, [4]), spec, [4])
    first, second = (random_step(spec, 0, 4, rng) for _ in range(2))
    outputs = memory.read(memory.write(first))
    memory.write(second)
    assert_equal(outputs, dataclasses.replace(first, observations=second.observations))


def test_memory_is_gone_with_the_last_process_that_maps_it() -> None:
    """Another process finds it by a path while it is open; no name is left behind."""
    spec = SPECS["vector"]
    file = make_file(spec, [2])
    (memory,) = map_groups(file, spec, [2])
    program = (
        "import os, sys, numpy\n"
        "from seed.step_memory import map_groups\n"
        "from tests.seed.test_step_memory import SPECS\n"
        "(memory,) = map_groups(os.open(sys.argv[1], os.O_RDWR), SPECS['vector'], [2])\n"
        "memory.answer(numpy.array([5, 6]))\n"
    )
    subprocess.run([sys.executable, "-c", program, path_of(file)], check=True)
    assert memory.actions().tolist() == [5, 6]
    assert "(deleted)" in os.readlink(path_of(file))
    os.close(file)
    assert not Path(path_of(file)).exists()
