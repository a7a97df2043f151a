"""Measures the cost of acting, training, the wire and replay on this machine, each alone.

    python -m seed_bench.parts.learner forward|train|wire|replay ...

Prints one JSON object; `seed bench` runs it, so that every part is measured in a process of
its own, on one thread.
"""

import copy
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import nn

from learner.agents.base import ActInput, Agent
from learner.agents.registry import make_agent
from learner.agents.steps import example_step
from learner.checkpoint import load_checkpoint
from learner.config.agent_config import AgentConfig, R2D2Config
from learner.config.config_file import load_config
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.device.setup import set_up_torch
from learner.networks.torsos import lay_out
from learner.records import Batch, Rows, Steps, Unrolls
from learner.reporting.metrics import Metrics
from learner.training.trainer import Trainer
from seed.errors import exits_on_error, require
from seed.serialization import structure
from seed.specs import EnvSpec
from seed_bench.parts.replay import ReplayArgs, measure_replay
from seed_bench.parts.wire import WireArgs, measure_wire

# A measurement is the best of this many: other work on the machine can only slow it down.
_NUM_ROUNDS = 5

# An update is measured in this many equal parts; 1 is the whole.
_PARTS_OF_BATCH = (1, 2, 4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForwardArgs:
    """Acting: one forward pass with sampling."""

    run: Path
    """Run directory whose network and specs to measure."""
    batch_sizes: tuple[int, ...] = (16, 32)
    """Environments in a pass."""
    seconds: float = 2.0
    """Seconds for each batch size and memory layout."""

    def __post_init__(self) -> None:
        smallest = min(self.batch_sizes, default=0)
        require(smallest >= 1, "batch_sizes", "one or more of at least 1", self.batch_sizes)
        require(self.seconds > 0, "seconds", "above 0", self.seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainArgs:
    """Training: loss, backward pass and optimiser on one batch of unrolls."""

    run: Path
    """Run directory whose network, agent and optimiser to measure."""
    seconds: float = 4.0
    """Seconds for each memory layout."""

    def __post_init__(self) -> None:
        require(self.seconds > 0, "seconds", "above 0", self.seconds)


def measure_forward(args: ForwardArgs) -> dict[str, float]:
    """Returns the best CPU seconds per env step of acting, by batch size."""
    config, spec = _load(args.run)
    agent = make_agent(spec, config)
    results = {}
    for size in args.batch_sizes:
        state = agent.initial_state(size, torch.device("cpu"))
        inputs = ActInput(random_rows(spec, 1, size), state, torch.arange(size))
        generator = torch.Generator().manual_seed(0)

        def act(
            network: nn.Module, inputs: ActInput = inputs, generator: torch.Generator = generator
        ) -> None:
            with torch.inference_mode():
                agent.act(network, inputs, generator)

        network = agent.acting_part(agent.build_network()).eval()
        best_s = _best_layout(network, act, args.seconds)
        results[str(size)] = best_s / size
    return results


def measure_train(args: TrainArgs) -> dict[str, float]:
    """Returns the best CPU seconds per env step of one update.

    The unrolls of a batch go through the network all at once or in parts, as they do when
    threads share an update. The network decides which is cheaper; the cheaper one counts.
    """
    config, spec = _load(args.run)
    agent = make_agent(spec, config)
    num_unrolls = config.agent.unrolls_per_update
    sizes = sorted({-(-num_unrolls // parts) for parts in _PARTS_OF_BATCH})
    costs_s = []
    for size in sizes:
        batch = random_batch(spec, agent, config.agent, size)
        trainers: dict[nn.Module, Trainer] = {}

        def update(
            network: nn.Module, batch: Batch = batch, trainers: dict[nn.Module, Trainer] = trainers
        ) -> None:
            if network not in trainers:
                trainers[network] = Trainer(agent, network, config.optimizer, Metrics())
            trainers[network].train_step(batch, learner_step=0, progress=0.0)

        best_s = _best_layout(agent.build_network(), update, args.seconds / len(sizes))
        costs_s.append(best_s / size)
    return {"train": min(costs_s) * num_unrolls / config.agent.env_steps_per_update}


def _load(run: Path) -> tuple[RunConfig, EnvSpec]:
    state = load_checkpoint(RunDir(run).checkpoints).state
    return load_config(RunDir(run).config), structure(state["spec"], EnvSpec)


def _best_layout(network: nn.Module, work: Callable[[nn.Module], None], seconds: float) -> float:
    """Returns the CPU seconds of one `work`, in the better of two memory layouts.

    The two take turns, so that a slow spell of the machine hits both.
    """
    layouts = [network, lay_out(copy.deepcopy(network), channels_last=True)]
    best_s = float("inf")
    for _ in range(_NUM_ROUNDS):
        for candidate in layouts:
            work(candidate)
            best_s = min(best_s, _cpu_seconds(lambda n=candidate: work(n), seconds / _NUM_ROUNDS))
    return best_s


def _cpu_seconds(work: Callable[[], None], seconds: float) -> float:
    """Returns the CPU seconds of one call, the mean over `seconds` of them."""
    calls, started_s = 0, time.process_time()
    while (elapsed_s := time.process_time() - started_s) < seconds or not calls:
        work()
        calls += 1
    return elapsed_s / calls


def random_rows(spec: EnvSpec, num_rows: int, batch_size: int) -> Rows:
    """Returns rows [num_rows, batch_size] of one long episode, the same each time."""
    rng = np.random.default_rng(0)
    shape = (num_rows, batch_size)
    observations = tuple(
        torch.from_numpy(
            rng.integers(0, leaf.num_values or 256, (*shape, *leaf.shape)).astype(leaf.dtype)
        )
        for leaf in spec.observations
    )
    none = torch.zeros(shape, dtype=torch.bool)
    actions = torch.from_numpy(rng.integers(0, spec.action.num_values, shape))
    return Rows(observations, torch.zeros(shape), actions, none, none, none)


def random_batch(spec: EnvSpec, agent: Agent, config: AgentConfig, size: int) -> Batch:
    """Returns `size` unrolls to train on, as acting with a fresh network would record them."""
    num_rows = config.num_rows
    rows = random_rows(spec, num_rows, size)
    outputs = {
        name: x.expand(num_rows, size, *x.shape[2:]).contiguous()
        for name, x in example_step(spec, agent).steps.policy_outputs.items()
    }
    versions = torch.zeros((num_rows, size), dtype=torch.int64)
    state = agent.initial_state(size, torch.device("cpu"))
    weights = torch.ones(size) if isinstance(config, R2D2Config) else None
    steps = Steps(rows, rows.previous_actions, outputs, versions)
    return Batch(Unrolls(steps, state), importance_weights=weights)


@exits_on_error("seed_bench.parts.learner")
def main(argv: Sequence[str]) -> int:
    """Measures one part and prints a JSON object; returns the exit code."""
    print(json.dumps(_measure(argv)))
    return 0


def _measure(argv: Sequence[str]) -> dict[str, float]:
    set_up_torch("cpu", torch_threads=1)
    args = tyro.extras.subcommand_cli_from_dict(
        {"forward": ForwardArgs, "train": TrainArgs, "wire": WireArgs, "replay": ReplayArgs},
        prog="python -m seed_bench.parts.learner",
        args=argv,
    )
    if isinstance(args, ForwardArgs):
        return measure_forward(args)
    if isinstance(args, TrainArgs):
        return measure_train(args)
    if isinstance(args, ReplayArgs):
        return measure_replay(args)
    return measure_wire(args)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
