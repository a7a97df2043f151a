"""An algorithm of another package: PPO, by its name."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from learner.records import Completed, Unrolls, transitions
from tests.learner.builders import assert_same, env_spec, random_unrolls, seeded
from tests.packages.ppo import PPO, Epochs, PPOConfig, advantages_of
from tests.support.processes import TIMEOUT_S, command

NAME = f"{PPO.__module__}:PPO"
CONFIG = PPOConfig(unroll_length=6, batch_size=2, num_minibatches=3, num_epochs=4)


def collected(num_unrolls: int, config: PPOConfig = CONFIG) -> Unrolls:
    """Returns unrolls as PPO's acting leaves them."""
    unrolls = random_unrolls(env_spec(), config.num_rows, num_unrolls, {}, seeded())
    value = torch.randn(config.num_rows, num_unrolls, generator=seeded(1))
    outputs = unrolls.steps.policy_outputs | {"value": value}
    return Unrolls(unrolls.steps._replace(policy_outputs=outputs), {})


def test_advantages_equal_the_plain_sum() -> None:
    """The definition is sum_k (gamma lambda)^k delta_{t+k} up to an end, here in float64."""
    steps = transitions(collected(5).steps.rows, 0.9)
    values = torch.randn(7, 5, generator=seeded(2), dtype=torch.float64)
    rewards, discounts, mask = (x.double() for x in steps)
    got = advantages_of(values, rewards, discounts, mask, 0.8)
    deltas = rewards + discounts * values[1:] - values[:-1]
    for t in range(6):
        for b in range(5):
            total, weight = 0.0, 1.0
            for k in range(t, 6):
                if not mask[k, b]:
                    break
                total += weight * deltas[k, b].item()
                weight *= 0.8 * discounts[k, b].item()
            assert got[t, b].item() == pytest.approx(total)


def test_every_unroll_comes_once_an_epoch() -> None:
    """The order changes each time, and the first minibatch also brings the newest unrolls."""
    experience = Epochs(CONFIG, rng_seed=0)
    unrolls = collected(6)
    experience.put(Completed(unrolls, np.arange(6), np.ones(6, bool)))
    samples = [experience.next_batch() for _ in range(3 * 4)]
    assert samples[0].newest is not None
    assert_same(samples[0].newest, unrolls)
    assert all(sample.newest is None for sample in samples[1:])
    first = unrolls.steps.rows.rewards[0].tolist()
    orders = []
    for epoch in range(4):
        minibatches = samples[3 * epoch : 3 * epoch + 3]
        rewards = [s.batch.unrolls.steps.rows.rewards[0].tolist() for s in minibatches]
        orders.append(tuple(first.index(x) for minibatch in rewards for x in minibatch))
    assert [sorted(order) for order in orders] == [list(range(6))] * 4
    assert len(set(orders)) > 1


def test_its_flags_have_help() -> None:
    """Each field of its config is a flag, with its docstring as the help."""
    done = subprocess.run(
        command("train", "cartpole-vtrace", "--agent", NAME, "--help"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "--clip-range" in done.stdout and "Largest change of a probability" in done.stdout
    assert "--rho-max" not in done.stdout


@pytest.mark.learning
def test_cartpole_is_balanced(tmp_path: Path) -> None:
    """The best return of CartPole-v1 is 500, and the golden check holds."""
    run_dir = tmp_path / "run"
    flags = ("--total-env-steps", 100_000, "--reward-scale", 0.05, "--run-dir", run_dir)
    subprocess.run(
        command("train", "cartpole-vtrace", "--agent", NAME, *flags), check=True, timeout=100
    )
    done = subprocess.run(
        command("eval", run_dir, "--episodes", 20, "--json"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["eval_return_mean"] >= 450
    name = "policy/max_abs_log_rho_at_zero_lag"
    reports = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    deviations = [report[name] for report in reports if name in report]
    assert deviations and max(deviations) < 1e-4
