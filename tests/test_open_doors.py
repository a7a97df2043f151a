"""Packages of other authors run: from the current folder, and installed with entry points.

No file of the product names any of them. `tests/packages` holds what docs/extending.md shows.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.agents.base import ActInput, Agent
from learner.agents.registry import make_agent
from learner.config.agent_config import AgentConfig, R2D2Config, VTraceConfig
from learner.config.run_config import NetworkConfig, RunConfig
from learner.records import Batch, Steps, Unrolls, map_tensors
from tests.learner.builders import (
    GEAR,
    SPEED,
    env_spec,
    random_rows,
    seeded,
    with_random_weights,
)
from tests.packages.weight_decay import DecayingConfig
from tests.support.plugins import install

ROOT = Path(__file__).parent.parent
PACKAGES = ROOT / "tests" / "packages"
TIMEOUT_S = 100.0
SPEC = env_spec(SPEED, GEAR)

# As pip writes it; unlike `python -m`, it does not search the current folder.
CONSOLE_SCRIPT = """
import sys
from seed.cli import main

if __name__ == "__main__":
    sys.exit(main())
"""


class User:
    """A user in a folder of their own, with only the `seed` command."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "work"
        self.site = directory / "site"
        for path in (self.folder, self.site):
            path.mkdir()
        self._script = directory / "seed"
        self._script.write_text(CONSOLE_SCRIPT)

    def start(self, *args: object) -> subprocess.Popen[str]:
        """Starts `seed <args>` in the user's folder."""
        searched = os.pathsep.join(map(str, (self.site, ROOT)))
        return subprocess.Popen(
            [sys.executable, str(self._script), *map(str, args)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": searched},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: object) -> str:
        """Returns what `seed <args>` prints on stdout; a failure fails the test."""
        return _output_of(self.start(*args))


def _output_of(process: subprocess.Popen[str]) -> str:
    stdout, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    return stdout


@pytest.fixture
def user(tmp_path: Path) -> User:
    """A user with an empty folder."""
    return User(tmp_path)


def _largest_deviation(run_dir: Path) -> float:
    """Returns the largest value of the golden check in a run that made it at least once."""
    name = "policy/max_abs_log_rho_at_zero_lag"
    reports = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return max(report[name] for report in reports if name in report)


def test_modules_of_the_current_folder_train_and_are_evaluated(user: User) -> None:
    """An environment with its preset, a network and an agent stand in the folder."""
    for name in ("corridor", "gru_core", "weight_decay"):
        shutil.copy(PACKAGES / f"{name}.py", user.folder)
    output = user.run(
        *("train", "corridor:CORRIDOR", "--torso", "gru_core:GRUCore", "--json"),
        *("--agent", "weight_decay:DecayingVTrace", "--weight-decay", "0.0001"),
        *("--train-in", "process", "--run-dir", "run"),
    )
    final = json.loads(output)
    assert final["env_steps"] >= 20_000
    assert _largest_deviation(user.folder / "run") < 1e-3
    results = json.loads(user.run("eval", "run", "--episodes", "5", "--json"))
    assert results["eval_return_mean"] == 1, "the corridor's end is found"


def test_installed_packages_serve_a_learner_and_an_actor(user: User) -> None:
    """Entry points name them, and R2D2 trains with the preset of V-trace."""
    for name in ("corridor", "gru_core"):
        shutil.copy(PACKAGES / f"{name}.py", user.site)
    groups = {
        "seed_rl.presets": {"corridor": "corridor:CORRIDOR"},
        "seed_rl.torsos": {"gru": "gru_core:GRUCore"},
    }
    install(user.site, "corridor-games", groups)
    assert "Of the installed package corridor-games." in user.run("train", "--help")
    learner = user.start(
        *("learner", "corridor", "--torso", "gru", "--agent", "r2d2", "--json"),
        *("--listen", "unix:socket", "--run-dir", "run", "--total-env-steps", "6000"),
        *("--sequence-length", "8", "--burn-in", "4", "--batch-size", "8", "--head-size", "0"),
        *("--replay-min-size", "50", "--replay-capacity", "500", "--report-every-s", "1"),
    )
    actor = user.start("actor", "--learner", "unix:socket", "--max-backoff-s", "0.5")
    try:
        final = json.loads(_output_of(learner))
    finally:
        actor.terminate()
        actor.communicate(timeout=TIMEOUT_S)
        learner.kill()
    assert final["env_steps"] >= 6_000
    assert final["learner_steps"] > 0
    assert _largest_deviation(user.folder / "run") < 1e-3


def test_module_that_is_not_there_costs_one_line(user: User) -> None:
    """The error has no traceback, and the exit code is 2."""
    process = user.start("train", "cartpole-vtrace", "--agent", "no_such_agent:Agent")
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert stderr.startswith("seed train: agent: expected a module in the current folder")
    assert stderr.count("\n") == 1


def _gru_agent(config: AgentConfig) -> Agent:
    network = NetworkConfig(torso="tests.packages.gru_core:GRUCore", hidden_sizes=(8,))
    return make_agent(SPEC, RunConfig(network=network, agent=config))


@pytest.mark.parametrize(
    ("config", "output"),
    [
        (VTraceConfig(unroll_length=9), "logits"),
        (R2D2Config(sequence_length=6, burn_in=3, head_size=4), "q"),
    ],
    ids=["vtrace", "r2d2"],
)
def test_whole_network_of_a_stranger_passes_the_golden_check(
    config: AgentConfig, output: str
) -> None:
    """Acting row by row equals training's forward over all rows, across resets."""
    agent, num_envs = _gru_agent(config), 5
    network = with_random_weights(agent.build_network())
    acting = agent.acting_part(network)
    rows = random_rows(SPEC, config.num_rows, num_envs, seeded(1))
    assert rows.is_first[1:].any()
    first_state = agent.initial_state(num_envs, torch.device("cpu"))
    acted, state = [], first_state
    for t in range(config.num_rows):
        row = map_tensors(lambda x, t=t: x[t : t + 1], rows)
        inputs = ActInput(row, state, slots=torch.arange(num_envs))
        acted.append(agent.act(acting, inputs, seeded(t)))
        state = acted[-1].state
    steps = Steps(
        rows=rows,
        actions=torch.stack([step.actions for step in acted]),
        policy_outputs={output: torch.stack([step.policy_outputs[output] for step in acted])},
        policy_versions=torch.zeros(rows.is_first.shape, dtype=torch.int64),
    )
    unrolls = Unrolls(steps, first_state)
    assert agent.log_ratios(acting, unrolls).abs().max() < 1e-5
    loss = agent.loss(network, Batch(unrolls), agent.num_valid(unrolls), 0.0).loss
    loss.backward()
    assert all(p.grad is not None for p in network.get_submodule(_core_of(output)).parameters())


def _core_of(output: str) -> str:
    return "core" if output == "logits" else "online.core"


def test_agent_of_a_stranger_changes_what_its_flag_says() -> None:
    """Weights shrink by the share that --weight-decay names."""
    config = DecayingConfig(
        algorithm="tests.packages.weight_decay:DecayingVTrace", weight_decay=0.25
    )
    agent = make_agent(SPEC, RunConfig(agent=config))
    network = with_random_weights(agent.build_network())
    before = [p.detach().clone() for p in network.parameters()]
    agent.after_update(network, 1)
    for got, was in zip(network.parameters(), before, strict=True):
        torch.testing.assert_close(got.detach(), 0.75 * was)


def test_torso_of_a_stranger_sees_large_and_small_values() -> None:
    """Features differ for 1 and 2, and for 1,000 and 2,000."""
    network = NetworkConfig(torso="tests.packages.symlog_torso:SymlogTorso", hidden_sizes=(8,))
    agent = make_agent(env_spec(SPEED), RunConfig(network=network))
    torso: Any = with_random_weights(agent.build_network()).get_submodule("core.torsos.0")
    one, two, thousand = (torso(torch.full((1, 1, 3), x)) for x in (1.0, 2.0, 1000.0))
    assert not torch.equal(one, two)
    assert (thousand - one).abs().max() < 30 * (two - one).abs().max()


def test_docs_show_these_packages_as_they_are() -> None:
    """Every block of Python in docs/extending.md is the file named above it."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"`(tests/packages/\w+\.py)`[^`]*```python\n(.*?)```", text, re.DOTALL)
    assert text.count("```python") == len(blocks) >= 4
    for file, source in blocks:
        assert source == (ROOT / file).read_text(encoding="utf-8"), file
