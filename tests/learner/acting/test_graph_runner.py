"""Padded batches give the same answers as the agent called plainly, with any padding."""

import pytest
import torch
from torch import Tensor, nn

from learner.acting.graph_runner import PaddedRunner, padded_sizes
from learner.agents.base import ActInput, ActOutput, Agent
from learner.agents.r2d2 import R2D2Agent
from learner.agents.steps import example_step
from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import R2D2Config, VTraceConfig
from learner.device.recorders import HostRecorder, make_recorder
from learner.records import map_tensors, tensors_of
from tests.learner.builders import (
    GEAR,
    NETWORKS,
    SCREEN,
    SPEED,
    env_spec,
    random_flags,
    random_rows,
    seeded,
    with_random_weights,
)

MAX_SIZE = 40
SPEC = env_spec(SCREEN, SPEED, GEAR)
AGENTS: dict[str, Agent] = {
    # A quarter of all actions at random, and some of the greedy ones too.
    "r2d2": R2D2Agent(
        SPEC,
        NETWORKS["everything"],
        R2D2Config(head_size=8, exploration_base=0.25, exploration_exponent=0, eval_epsilon=0.1),
    ),
    "vtrace": VTraceAgent(SPEC, NETWORKS["everything"], VTraceConfig()),
}
NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def random_batch(agent: Agent, count: int, rng_seed: int) -> ActInput:
    """Returns rows [1, count], a state that is not zero, slots, and a mask of greedy rows."""
    generator = seeded(rng_seed)
    rows = random_rows(SPEC, 1, count, generator)
    state = map_tensors(
        lambda x: torch.rand(x.shape, generator=generator).mul(4).to(x.dtype),
        agent.initial_state(count, torch.device("cpu")),
    )
    slots = torch.randperm(1000, generator=generator)[:count]
    return ActInput(rows, state, slots, greedy=random_flags((count,), generator))


def make_padded(
    agent: Agent, *networks: nn.Module, device: str = "cpu"
) -> tuple[PaddedRunner, torch.Generator]:
    """Returns a runner that is ready, and the generator that it draws from."""
    generator = torch.Generator(device)
    example = example_step(SPEC, agent)
    recorder = make_recorder(generator)
    runner = PaddedRunner(agent, generator, recorder, example=example, max_size=MAX_SIZE)
    runner.prepare(networks)
    return runner, generator


def make_network(agent: Agent, rng_seed: int = 0) -> nn.Module:
    """Returns an acting part whose answers differ from row to row."""
    return with_random_weights(agent.acting_part(agent.build_network()), rng_seed).eval()


def copies(output: ActOutput) -> ActOutput:
    """Returns copies of the tensors, which the next batch does not change."""
    return map_tensors(torch.clone, output)


def assert_equal(got: ActOutput, expected: ActOutput) -> None:
    """Asserts that all tensors are equal to the last bit."""
    for a, b in zip(tensors_of(got), tensors_of(expected), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", AGENTS)
@torch.inference_mode()
def test_padding_does_not_matter(name: str) -> None:
    """Actions, outputs and states are the same bits, here with rows of an earlier batch behind."""
    agent, count = AGENTS[name], 21
    network = make_network(agent)
    runner, generator = make_padded(agent, network)
    inputs = random_batch(agent, count, rng_seed=0)
    # The batch is filled up to the next size with rows of another batch.
    padded = joined(inputs, random_batch(agent, 32 - count, rng_seed=1))
    expected = map_tensors(lambda x: x[:count], agent.act(network, padded, seeded(7)))
    for before in (0, 32, 7, 40):
        if before:
            runner(network, random_batch(agent, before, rng_seed=before))
        generator.manual_seed(7)
        assert_equal(runner(network, inputs), expected)


def joined(first: ActInput, second: ActInput) -> ActInput:
    """Returns both batches as one."""
    rows = map_tensors(lambda a, b: torch.cat([a, b], dim=1), first.rows, second.rows)
    others = map_tensors(lambda a, b: torch.cat([a, b]), tuple(first[1:]), tuple(second[1:]))
    return ActInput(rows, *others)


@pytest.mark.parametrize("name", AGENTS)
@torch.inference_mode()
def test_batches_of_any_size_give_what_the_agent_gives(name: str) -> None:
    """They agree to float tolerance, as kernels differ by size, and exactly beyond the largest."""
    agent = AGENTS[name]
    network = make_network(agent)
    runner, _ = make_padded(agent, network)
    for count in (1, 8, 9, 33, MAX_SIZE, MAX_SIZE + 1):
        inputs = random_batch(agent, count, rng_seed=count)
        got = runner(network, inputs)
        expected = agent.act(network, inputs, seeded())
        assert got.actions.shape == (count,)
        torch.testing.assert_close(got.policy_outputs, expected.policy_outputs)
        torch.testing.assert_close(got.state, expected.state)


@pytest.mark.parametrize("greedy", [None, "all", "some"])
@torch.inference_mode()
def test_greedy_rows_are_those_that_are_asked_for(greedy: str | None) -> None:
    """They draw as without padding, and the greedy rows of the batch before are forgotten."""
    agent = AGENTS["vtrace"]
    network = make_network(agent)
    runner, generator = make_padded(agent, network)
    inputs = random_batch(agent, 30, rng_seed=3)
    all_rows = torch.ones(30, dtype=torch.bool)
    runner(network, inputs._replace(greedy=all_rows))
    masks = {None: None, "all": all_rows, "some": inputs.greedy}
    inputs = inputs._replace(greedy=masks[greedy])
    generator.manual_seed(5)
    got = copies(runner(network, inputs))
    expected = agent.act(network, inputs, seeded(5))
    assert torch.equal(got.actions, expected.actions)
    best = got.policy_outputs["logits"].argmax(-1)
    assert torch.equal(got.actions, best) == (greedy == "all")


@torch.inference_mode()
def test_actions_stay_when_the_next_batch_is_acted_on() -> None:
    """Actions may still be on their way to actors; the other results are overwritten."""
    agent = AGENTS["vtrace"]
    network = make_network(agent)
    runner, _ = make_padded(agent, network)
    first = runner(network, random_batch(agent, 30, rng_seed=0))
    kept = copies(first)
    second = runner(network, random_batch(agent, 30, rng_seed=1))
    assert torch.equal(first.actions, kept.actions)
    assert not torch.equal(first.actions, second.actions)
    assert not torch.equal(first.policy_outputs["logits"], kept.policy_outputs["logits"])


@torch.inference_mode()
def test_weights_written_in_place_act_at_once() -> None:
    """The recording reads the weights in place, and each network has its own recording."""
    agent = AGENTS["vtrace"]
    networks = [make_network(agent, rng_seed) for rng_seed in (0, 1)]
    runner, _ = make_padded(agent, *networks)
    inputs = random_batch(agent, 12, rng_seed=0)
    for rng_seed in (2, 3):
        with_random_weights(networks[0], rng_seed)
        for network in networks:
            got = runner(network, inputs).policy_outputs["logits"]
            expected = agent.act(network, inputs, seeded())
            torch.testing.assert_close(got, expected.policy_outputs["logits"])


def test_making_ready_draws_nothing() -> None:
    """A resumed run then draws the numbers that it would have drawn without the stop."""
    agent = AGENTS["r2d2"]
    generator = seeded(11)
    example = example_step(SPEC, agent)
    runner = PaddedRunner(agent, generator, HostRecorder(), example=example, max_size=MAX_SIZE)
    runner.prepare([make_network(agent)])
    assert torch.equal(generator.get_state(), seeded(11).get_state())


def test_sizes_are_powers_of_two_up_to_the_largest_batch() -> None:
    """The largest batch itself need not be a power of two."""
    assert padded_sizes(1024) == (8, 16, 32, 64, 128, 256, 512, 1024)
    assert padded_sizes(100) == (8, 16, 32, 64, 100)
    assert padded_sizes(8) == (8,)
    assert padded_sizes(3) == (3,)


@pytest.mark.gpu
@NO_CUDA
@pytest.mark.parametrize("name", AGENTS)
@torch.inference_mode()
def test_gpu_graphs_give_what_the_agent_gives(name: str) -> None:
    """They agree over many batches and changing weights, and draws differ from batch to batch."""
    agent, device = AGENTS[name], torch.device("cuda")
    networks = [make_network(agent, rng_seed).to(device) for rng_seed in (0, 1)]
    with torch.cuda.stream(torch.cuda.Stream()):
        runner, generator = make_padded(agent, *networks, device="cuda")
        drawn: list[Tensor] = []
        for number in range(40):
            count = number % MAX_SIZE + 1
            batch = random_batch(agent, count, rng_seed=number)
            inputs = map_tensors(lambda x: x.to(device), batch)
            network = networks[number % 2]
            got = copies(runner(network, inputs))
            expected = agent.act(network, inputs, torch.Generator(device).manual_seed(0))
            torch.testing.assert_close(
                got.policy_outputs, expected.policy_outputs, rtol=1e-3, atol=1e-3
            )
            torch.testing.assert_close(got.state, expected.state, rtol=1e-3, atol=1e-3)
            drawn.append(generator.get_state())
            with_random_weights_in_place(networks[0])
    # A graph that repeated its draws would leave the generator where it was.
    assert all(not torch.equal(a, b) for a, b in zip(drawn, drawn[1:], strict=False))


@torch.no_grad()
def with_random_weights_in_place(network: nn.Module) -> None:
    """Moves every weight a little, on its device."""
    for parameter in network.parameters():
        parameter.add_(0.01 * torch.randn_like(parameter))
