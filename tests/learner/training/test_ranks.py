"""Learners that train together do what one would: real processes, with gloo between them."""

import dataclasses
import multiprocessing
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch

from learner.config.agent_config import R2D2Config, ReplayConfig, VTraceConfig
from learner.config.run_config import RunConfig
from learner.config.torchrun import Place
from learner.training.ranks import Ranks, share_of
from seed.errors import ConfigError
from tests.learner.training.ranks_worker import resume, train, work

TIMEOUT_S = 90


def run_ranks(target: Callable[..., None], arguments: list[Any]) -> list[Any]:
    """Runs `target` once for each argument, side by side, and returns what each sends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    context, processes, receivers = multiprocessing.get_context("spawn"), [], []
    for rank, argument in enumerate(arguments):
        place = {"RANK": str(rank), "WORLD_SIZE": str(len(arguments))}
        receiver, answers = context.Pipe(duplex=False)
        each = (argument, Place(rank, len(arguments), rank), environment | place, answers)
        processes.append(context.Process(target=target, args=each, daemon=True))
        receivers.append(receiver)
        processes[-1].start()
        answers.close()
    try:
        assert all(receiver.poll(TIMEOUT_S) for receiver in receivers)
        return [receiver.recv() for receiver in receivers]
    finally:
        for process in processes:
            process.kill()
            process.join()


@pytest.mark.parametrize("algorithm", ["vtrace", "r2d2"])
def test_two_learners_make_the_update_of_one(algorithm: str) -> None:
    """Each has half of every batch; weights, statistics and reported losses are the same."""
    alone, metrics = train(algorithm, Place())
    for weights, reported in run_ranks(work, [algorithm, algorithm]):
        assert weights.keys() == alone.keys()
        for name, wanted in alone.items():
            if name.endswith("count"):
                continue  # Each learner has seen half of the frames.
            got = torch.tensor(weights[name])
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-6, msg=name)
        for name in ("loss/total", "optimizer/grad_norm_mean"):
            assert reported[name] == pytest.approx(metrics[name], rel=1e-4)


def test_learners_of_different_checkpoints_refuse_to_train() -> None:
    """One of them does not see the directory of the others."""
    wanted = "learner_step: expected the same checkpoint on all 2 ranks, got 3 to 7"
    assert run_ranks(resume, [3, 7]) == [f"CheckpointError: {wanted}"] * 2


def test_single_learner_agrees_with_itself() -> None:
    """It has no process group and waits for no other."""
    ranks, values = Ranks(), torch.ones(2)
    ranks.join(torch.nn.Linear(1, 1), learner_step=5)
    ranks.sum([values])
    assert ranks.total(7) == 7
    assert values.tolist() == [1, 1]
    ranks.leave()


def test_share_is_a_part_of_batch_and_replay() -> None:
    """Nothing else changes, and a single learner has everything."""
    replay = ReplayConfig(replay_capacity=1001, replay_min_size=100)
    config = RunConfig(agent=R2D2Config(batch_size=12, replay=replay))
    share = share_of(config, Ranks(Place(1, 4, 1)))
    assert isinstance(share.agent, R2D2Config) and isinstance(config.agent, R2D2Config)
    assert share.agent.batch_size == 3
    assert (share.agent.replay.replay_capacity, share.agent.replay.replay_min_size) == (251, 25)
    undone = dataclasses.replace(share.agent, batch_size=12, replay=replay)
    assert dataclasses.replace(share, agent=undone) == config
    assert share_of(config, Ranks()) is config


def test_batch_that_cannot_be_shared_is_refused() -> None:
    """The error names the field and the number of learners."""
    config = RunConfig(agent=VTraceConfig(batch_size=10))
    with pytest.raises(ConfigError, match="^batch_size: expected a multiple of the 4 learners"):
        share_of(config, Ranks(Place(0, 4, 0)))
