"""Any environment that an actor describes gives a network that plays it, or an error of ours."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.agents.steps import example_step
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.config.run_config import NetworkConfig, RunConfig
from seed.errors import SeedError, SpecError
from seed.specs import DTYPES, MAX_NUM_VALUES, ArraySpec, EnvSpec
from tests.fuzz.profiles import QUICK

NETWORK = NetworkConfig(hidden_sizes=(4,), lstm_size=2, frame_stack=2, see_last_step=True)
CONFIGS = {
    "vtrace": RunConfig(network=NETWORK, agent=VTraceConfig()),
    "r2d2": RunConfig(network=NETWORK, agent=R2D2Config(head_size=4)),
}


def mostly(usual: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Returns a strategy that seldom draws `rare`, since else hardly any spec would be played."""
    return st.integers(0, 29).flatmap(lambda number: usual if number else rare)


SIZES = mostly(st.one_of(st.integers(1, 8), st.integers(36, 44)), st.integers(-1, 0))
SHAPES = st.lists(SIZES, max_size=3).map(tuple)
NUM_VALUES = mostly(st.integers(1, 6), st.sampled_from([-1, 0, 2**31, MAX_NUM_VALUES + 1]))
BOUNDS = mostly(st.sampled_from([0.0, 1.0, 255.0, float("inf")]), st.floats())
# Paths in nested spaces, and keys that a user may have given a Dict space.
NAMES = mostly(
    st.one_of(
        st.sampled_from(["observation", "camera/left", "0/position", "a.b", "forward", " "]),
        st.text(min_size=1, max_size=5),
    ),
    st.just(""),
)
ANY_DTYPE = mostly(st.sampled_from(sorted(DTYPES)), st.text(max_size=6))
INTEGERS = mostly(st.sampled_from(["int64", "int32", "uint8"]), ANY_DTYPE)


def arrays(
    dtype: st.SearchStrategy[str],
    shape: st.SearchStrategy[tuple[int, ...]],
    num_values: st.SearchStrategy[int],
) -> st.SearchStrategy[dict[str, Any]]:
    """Returns a strategy for the fields of an ArraySpec, most of them possible."""
    return st.fixed_dictionaries(
        {"name": NAMES, "dtype": dtype, "shape": shape, "num_values": num_values},
        optional={"minimum": BOUNDS, "maximum": BOUNDS},
    )


LEAVES = st.one_of(arrays(ANY_DTYPE, SHAPES, st.just(0)), arrays(INTEGERS, st.just(()), NUM_VALUES))
ACTIONS = arrays(INTEGERS, mostly(st.just(()), st.just((2,))), NUM_VALUES)


def spec_of(leaves: list[dict[str, Any]], action: dict[str, Any]) -> EnvSpec | None:
    """Returns the spec, or None where it is refused as it should be."""
    try:
        return EnvSpec(
            observations=tuple(ArraySpec(**leaf) for leaf in leaves), action=ArraySpec(**action)
        )
    except SpecError as error:
        assert ": expected " in str(error)
        return None


def agent_of(spec: EnvSpec, config: RunConfig) -> Agent | None:
    """Returns the agent, or None where it is refused as it should be."""
    try:
        return make_agent(spec, config)
    except SeedError as error:
        assert ": expected " in str(error)
        return None


PLAIN = {"name": "x", "dtype": "float32", "shape": (3,), "num_values": 0}
FOUR = {"name": "action", "dtype": "int64", "shape": (), "num_values": 4}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
@QUICK
@given(leaves=st.lists(LEAVES, max_size=3), action=ACTIONS)
@example(leaves=[PLAIN | {"name": "a.b"}], action=FOUR)
@example(leaves=[PLAIN | {"name": "forward"}], action=FOUR)
def test_spec_is_played_or_refused(
    config: RunConfig, leaves: list[dict[str, Any]], action: dict[str, Any]
) -> None:
    """The first actor's spec decides what is built, and never ends the learner."""
    spec = spec_of(leaves, action)
    agent = agent_of(spec, config) if spec is not None else None
    if spec is None or agent is None:
        return
    step = example_step(spec, agent).steps
    assert step.actions.shape == (1, 1)
    assert 0 <= int(step.actions) < spec.action.num_values
    assert all(torch.isfinite(x).all() for x in step.policy_outputs.values())


@QUICK
@given(leaves=st.lists(LEAVES, min_size=1, max_size=3), other=LEAVES)
def test_spec_matches_itself_and_no_other(
    leaves: list[dict[str, Any]], other: dict[str, Any]
) -> None:
    """The refusal of another spec names what differs."""
    mine, theirs = spec_of(leaves, FOUR), spec_of([*leaves[:-1], other], FOUR)
    if mine is None or theirs is None:
        return
    mine.check_matches(dataclasses.replace(mine))
    if mine == theirs:
        return
    with pytest.raises(SpecError, match=r"^observations.*: expected .*, got "):
        mine.check_matches(theirs)
