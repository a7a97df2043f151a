"""The golden check: with the weights that acted, stored unrolls can be recomputed.

Over real gRPC with real actor processes. An environment that counts and an agent
that counts find the exact row where something went wrong; real networks, on the
same environment and on Pong, show that the same holds for logits.
"""

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
import torch
from torch import nn

from learner.acting.inference_thread import InferenceThread
from learner.agents.base import ActInput, Agent
from learner.agents.vtrace import VTraceAgent, VTraceNetwork
from learner.algos import distributions
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import InferenceConfig, NetworkConfig
from learner.records import Completed, State, Steps, Unrolls, map_tensors, select_unrolls
from learner.training.process.unroll_ring import UnrollReader
from seed.env_config import AtariConfig, EnvConfig
from seed.specs import EnvSpec
from tests.support import counting_agent, counting_env
from tests.support.counting_agent import CountingAgent
from tests.support.harness import ActingHarness

UNROLL_LENGTH = 6
# Of log-probabilities: the same weights in batches of other sizes.
TOLERANCE = 1e-4

# How episodes end: a mix, only truncation, only termination, every single step.
ENDINGS = {
    "mixed": '{"longest": 7, "truncate_every": 2}',
    "truncated": '{"longest": 4, "truncate_every": 1}',
    "terminated": '{"longest": 9, "truncate_every": 0}',
    "every_step": '{"longest": 1, "truncate_every": 3}',
}

# Batches as they come, and padded to few sizes as for CUDA graphs.
SIZES = {"plain": InferenceConfig(), "padded": InferenceConfig(cuda_graphs="on")}


def _columns(all_unrolls: list[Unrolls]) -> list[Unrolls]:
    """Returns each unroll alone, B = 1."""
    return [
        select_unrolls(unrolls, index, index + 1)
        for unrolls in all_unrolls
        for index in range(unrolls.num_unrolls)
    ]


def _row(unroll: Unrolls, t: int) -> Steps:
    return map_tensors(lambda x: x[t : t + 1], unroll.steps)


def _check_counting_unroll(unroll: Unrolls) -> None:
    """Asserts that one unroll of the counting environment and agent is right."""
    state: State = unroll.initial_state
    for t in range(UNROLL_LENGTH + 1):
        row = _row(unroll, t)
        count, checksum, stacked, frames = counting_agent.step(row.rows, state)
        outputs = row.policy_outputs
        assert torch.equal(outputs["count"][0], count), t
        assert torch.equal(outputs["checksum"][0], checksum), t
        assert torch.equal(outputs["stacked"][0], stacked), t
        assert row.actions.item() == checksum.item() % counting_env.NUM_ACTIONS, t
        assert outputs["version"].item() == row.policy_versions.item(), t
        state = {"count": count, "checksum": checksum, "frames": frames}
        if t < UNROLL_LENGTH:
            _check_transition(row, _row(unroll, t + 1))


def _check_transition(row: Steps, following: Steps) -> None:
    """Asserts that `following` is what the environment returns after `row`."""
    episode, step, _ = row.rows.observations[0].flatten().tolist()
    next_episode, next_step, led_here = following.rows.observations[0].flatten().tolist()
    if row.rows.terminated.item() or row.rows.truncated.item():
        assert (next_episode, next_step, led_here) == (episode + 1, 0, -1)
        assert following.rows.is_first.item()
        assert following.rows.rewards.item() == 0
        return
    assert (next_episode, next_step) == (episode, step + 1)
    assert led_here == row.actions.item() == following.rows.previous_actions.item()
    assert not following.rows.is_first.item()
    assert following.rows.rewards.item() == 10 * episode + next_step


@pytest.mark.parametrize(
    ("ending", "sizes", "ingress_processes", "ring", "flags"),
    [
        *((ending, sizes, 0, False, ()) for ending in ENDINGS for sizes in SIZES),
        ("mixed", "plain", 0, True, ()),
        ("mixed", "plain", 2, False, ()),
        ("mixed", "plain", 0, False, ("--share-memory",)),
        ("every_step", "plain", 2, True, ("--share-memory",)),
    ],
)
def test_counting_unrolls_are_exact_for_groups_of_any_size(
    tmp_path: Path,
    ending: str,
    sizes: str,
    ingress_processes: int,
    ring: bool,
    flags: tuple[str, ...],
) -> None:
    """Two actors with groups of different size share batches; every row is true.

    Also of unrolls that have been through the ring to a trainer process.
    """
    env = EnvConfig(env_id=counting_env.ENV_ID, env_kwargs=ENDINGS[ending])
    with (
        # Waits for all environments, so that batches mix the groups of both actors.
        ActingHarness(
            tmp_path,
            env,
            lambda spec: CountingAgent(UNROLL_LENGTH),
            dataclasses.replace(SIZES[sizes], min_fill=1.0, max_wait_ms=5.0),
            ingress_processes=ingress_processes,
            ring=ring,
        ) as harness,
        harness.actor("--envs-per-group", "3", "--num-groups", "1", *flags),
        harness.actor("--envs-per-group", "2", "--num-groups", "2", *flags),
    ):
        harness.wait_for_more(40)
        _publish_changing_versions(harness, CountingAgent(UNROLL_LENGTH), _set_version)
        all_unrolls = harness.wait_for_more(40)
    columns = _columns(all_unrolls)
    for unroll in columns:
        _check_counting_unroll(unroll)
    assert max(unroll.steps.policy_versions.max().item() for unroll in columns) > 0
    assert any(unroll.steps.policy_versions.unique().numel() > 1 for unroll in columns)


@pytest.mark.parametrize("flags", [(), ("--share-memory",)], ids=["grpc", "memory"])
def test_actor_killed_and_replaced_mid_unroll_leaves_no_trace(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Slots of a killed actor are used again; no unroll mixes the two actors, and none is wrong."""
    env = EnvConfig(env_id=counting_env.ENV_ID, env_kwargs=ENDINGS["mixed"])
    with (
        ActingHarness(tmp_path, env, lambda spec: CountingAgent(UNROLL_LENGTH)) as harness,
        harness.actor("--envs-per-group", "2", *flags),
    ):
        num_started = 4
        for envs_per_group in (5, 1, 3, 4):
            with harness.actor("--envs-per-group", str(envs_per_group), *flags):
                num_started += 2 * envs_per_group
                harness.wait_until(lambda unrolls, n=num_started: _num_starts(unrolls) == n)
                harness.wait_for_more(20)
    for unroll in _columns(harness.unrolls):
        _check_counting_unroll(unroll)


def test_ingress_process_killed_mid_unroll_leaves_no_trace(tmp_path: Path) -> None:
    """Its actors get slots that hold an unfinished unroll, and none of its rows stays."""
    env = EnvConfig(env_id=counting_env.ENV_ID, env_kwargs=ENDINGS["mixed"])
    quickly = ("--max-backoff-s", "0.1")
    with (
        ActingHarness(
            tmp_path, env, lambda spec: CountingAgent(UNROLL_LENGTH), ingress_processes=2
        ) as harness,
        harness.actor("--envs-per-group", "2", *quickly),
        harness.actor("--envs-per-group", "3", "--num-groups", "1", *quickly),
    ):
        for num_killed, index in enumerate((0, 1, 0)):
            harness.wait_until(lambda _, n=2 + num_killed: harness.num_tasks == n)
            harness.wait_for_more(40)
            os.kill(harness.ingress_pids[index], signal.SIGKILL)
        harness.wait_until(lambda _: harness.num_tasks == 5)
        harness.wait_for_more(40)
    for unroll in _columns(harness.unrolls):
        _check_counting_unroll(unroll)


def _num_starts(all_unrolls: list[Unrolls]) -> int:
    """Returns how many unrolls are their environment's first.

    That starts within the first 6 rows: two steps in episode 1, then episode 2.
    """
    rows = [unrolls.steps.rows.observations[0][0] for unrolls in all_unrolls]
    firsts = [(row[:, 0] == 1) | ((row[:, 0] == 2) & (row[:, 1] < 3)) for row in rows]
    return int(sum(first.sum() for first in firsts))


def _vtrace(network: NetworkConfig) -> Callable[[EnvSpec], Agent]:
    return lambda spec: VTraceAgent(
        spec, network, VTraceConfig(unroll_length=UNROLL_LENGTH, reward_scale=0.1)
    )


@pytest.mark.parametrize(
    ("lstm_size", "sizes", "ring"),
    [
        *((lstm_size, sizes, False) for lstm_size in (0, 16) for sizes in SIZES),
        (16, "plain", True),
    ],
)
def test_logits_are_recomputed_across_weight_versions(
    tmp_path: Path, lstm_size: int, sizes: str, ring: bool
) -> None:
    """The version that chose a row gives its recorded logits again, row by row."""
    made = _logits_made(tmp_path, lstm_size=lstm_size, sizes=sizes, ring=ring)
    for unroll in made.unrolls:
        assert _largest_deviation(made.agent, made.networks, unroll) < TOLERANCE


class Made(NamedTuple):
    """Unrolls, B = 1 each, and all that is needed to recompute them."""

    agent: Agent
    networks: dict[int, nn.Module]
    unrolls: list[Unrolls]


def _logits_made(tmp_path: Path, *, lstm_size: int, sizes: str, ring: bool) -> Made:
    """Returns the unrolls of two actors and a V-trace agent, made while weights changed."""
    env = EnvConfig(env_id=counting_env.ENV_ID, env_kwargs=ENDINGS["mixed"])
    network = NetworkConfig(lstm_size=lstm_size, frame_stack=4, see_last_step=True)
    make_agent = _vtrace(network)
    agents: list[Agent] = []

    def remember(spec: EnvSpec) -> Agent:
        agents.append(make_agent(spec))
        return agents[0]

    with (
        ActingHarness(tmp_path, env, remember, SIZES[sizes], ring=ring) as harness,
        harness.actor("--envs-per-group", "3"),
        harness.actor("--envs-per-group", "2", "--num-groups", "1"),
    ):
        harness.wait_for_more(10)
        _publish_changing_versions(harness, agents[0], _shift_weights)
        all_unrolls = harness.wait_for_more(40)
    return Made(agents[0], harness.networks, _columns(all_unrolls))


def _largest_deviation(agent: Agent, networks: dict[int, nn.Module], unroll: Unrolls) -> float:
    """Returns the largest difference of log-probabilities, stepping version by version."""
    state, largest = unroll.initial_state, 0.0
    for t in range(UNROLL_LENGTH + 1):
        row = _row(unroll, t)
        network = networks[int(row.policy_versions.item())]
        with torch.no_grad():
            inputs = ActInput(row.rows, state, slots=torch.zeros(1, dtype=torch.int64))
            output = agent.act(network, inputs, torch.Generator())
        ours = torch.log_softmax(output.policy_outputs["logits"], -1)
        recorded = torch.log_softmax(row.policy_outputs["logits"][0], -1)
        largest = max(largest, (ours - recorded).abs().max().item())
        state = output.state
    return largest


Break = Callable[[Completed], Completed]
"""Hands unrolls on as they are not."""


def _states_of_the_unroll_before() -> Break:
    """Returns a fault that gives each unroll the initial state of the one completed before."""
    last: list[State] = []

    def broken(completed: Completed) -> Completed:
        state = completed.unrolls.initial_state
        before = last.pop() if last else map_tensors(lambda x: x[:1], state)
        last.append(map_tensors(lambda x: x[-1:], state))
        moved = map_tensors(lambda one, x: torch.cat([one, x[:-1]]), before, state)
        return completed._replace(unrolls=completed.unrolls._replace(initial_state=moved))

    return broken


def _actions_of_the_row_before() -> Break:
    """Returns a fault that shifts actions by one row."""

    def broken(completed: Completed) -> Completed:
        steps, state = completed.unrolls
        steps = steps._replace(actions=steps.actions.roll(1, dims=0))
        return completed._replace(unrolls=Unrolls(steps, state))

    return broken


def _break_emitting(monkeypatch: pytest.MonkeyPatch, broken: Break) -> None:
    """Puts a fault into what acting hands on."""
    emit = InferenceThread._emit

    def emit_broken(thread: Any, completed: Completed) -> None:
        emit(thread, broken(completed))

    monkeypatch.setattr(InferenceThread, "_emit", emit_broken)


def _break_the_ring(monkeypatch: pytest.MonkeyPatch, broken: Break) -> None:
    """Puts a fault into what training takes out of the ring."""
    get = UnrollReader.get

    def get_broken(reader: Any) -> Completed:
        return broken(get(reader))

    monkeypatch.setattr(UnrollReader, "get", get_broken)


@pytest.mark.parametrize(
    ("make_break", "ring"),
    [
        (_states_of_the_unroll_before, False),
        (_states_of_the_unroll_before, True),
        (_actions_of_the_row_before, False),
        (_actions_of_the_row_before, True),
    ],
)
def test_counting_check_fails_where_the_hand_over_to_training_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_break: Callable[[], Break], ring: bool
) -> None:
    """The fault is in acting or in the ring; a check that cannot fail proves nothing."""
    (_break_the_ring if ring else _break_emitting)(monkeypatch, make_break())
    env = EnvConfig(env_id=counting_env.ENV_ID, env_kwargs=ENDINGS["mixed"])
    with (
        ActingHarness(tmp_path, env, lambda spec: CountingAgent(UNROLL_LENGTH), ring=ring) as made,
        made.actor("--envs-per-group", "3", "--num-groups", "1"),
    ):
        columns = _columns(made.wait_for_more(30))
    num_wrong = sum(not _passes(_check_counting_unroll, unroll) for unroll in columns)
    # Some only: an unroll that starts with an episode ignores its initial state.
    assert num_wrong >= 10


def _passes(check: Callable[[Unrolls], None], unroll: Unrolls) -> bool:
    try:
        check(unroll)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("ring", [False, True])
def test_logits_check_fails_where_the_hand_over_to_training_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ring: bool
) -> None:
    """An LSTM that starts from another unroll's state gives other logits."""
    broken = _states_of_the_unroll_before()
    (_break_the_ring if ring else _break_emitting)(monkeypatch, broken)
    made = _logits_made(tmp_path, lstm_size=16, sizes="plain", ring=ring)
    last = made.unrolls[-60:]
    deviations = [_largest_deviation(made.agent, made.networks, unroll) for unroll in last]
    assert sum(deviation > 100 * TOLERANCE for deviation in deviations) >= 10


def _publish_changing_versions(
    harness: ActingHarness, agent: Agent, change: Callable[[nn.Module, int], None]
) -> None:
    """Publishes 30 versions, each after some unrolls of the version before."""
    for version in range(1, 31):
        network = agent.build_network()
        change(network, version)
        harness.publish(network, version)
        harness.wait_for_more(1)


def _set_version(network: nn.Module, version: int) -> None:
    with torch.no_grad():
        counting_agent.version_of(network).fill_(version)


def _shift_weights(network: nn.Module, version: int) -> None:
    torch.manual_seed(version)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize(
    ("lstm_size", "sizes", "precision", "tolerance"),
    [
        (0, "plain", "float32", 1e-4),
        (16, "plain", "float32", 1e-4),
        (0, "padded", "float32", 1e-4),
        (16, "padded", "float32", 1e-4),
        # 8 bits of each number are kept, and kernels for one row and for a whole unroll may
        # add up in different orders. What acted in another precision is 2e-3 off.
        (16, "padded", "bfloat16", 1e-3),
    ],
)
def test_pong_logits_are_recomputed_from_whole_unrolls(
    tmp_path: Path,
    lstm_size: int,
    sizes: str,
    precision: Literal["float32", "bfloat16"],
    tolerance: float,
) -> None:
    """On real Pong with a frame stack of 4, one forward over an unroll gives its logits."""
    # Games are cut after 15 steps, so that ends fall inside and between unrolls.
    atari = AtariConfig(max_frames_per_episode=60)
    env = EnvConfig(env_id="ALE/Pong-v5", atari=atari)
    network = NetworkConfig(
        torso="impala_shallow",
        lstm_size=lstm_size,
        frame_stack=4,
        see_last_step=True,
        precision=precision,
    )
    agents: list[Agent] = []

    def remember(spec: EnvSpec) -> Agent:
        agents.append(_vtrace(network)(spec))
        return agents[0]

    with (
        ActingHarness(tmp_path, env, remember, SIZES[sizes]) as harness,
        harness.actor("--envs-per-group", "2", "--num-groups", "1"),
        harness.actor("--envs-per-group", "1", "--num-groups", "2"),
    ):
        harness.wait_for_more(1)
        # A fresh network's logits are nearly uniform for any input, so random weights are used.
        amplify = agents[0].build_network()
        assert isinstance(amplify, VTraceNetwork)
        with torch.no_grad():
            amplify.policy_head.weight.mul_(50)
        harness.publish(amplify, 1)
        harness.wait_for_more(60)
    whole = [u for u in _columns(harness.unrolls) if (u.steps.policy_versions == 1).all()]
    assert len(whole) >= 40
    assert any(u.steps.rows.is_first[1:].any() for u in whole)
    assert any(u.steps.rows.truncated.any() for u in whole)
    for unroll in whole:
        assert agents[0].log_ratios(amplify, unroll).abs().max() < tolerance
        probabilities = distributions.log_prob(
            unroll.steps.policy_outputs["logits"], unroll.steps.actions
        )
        assert probabilities.std() > 0
