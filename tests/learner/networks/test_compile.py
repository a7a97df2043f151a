"""Compiled torsos make the same update as torsos that are not compiled."""

import os
import shutil

import pytest
import torch

from learner.agents.vtrace import VTraceAgent
from learner.config.agent_config import VTraceConfig
from learner.config.run_config import NetworkConfig, OptimizerConfig
from learner.experience.base import Batch
from learner.networks.base import Torso
from learner.reporting.metrics import Metrics
from learner.training.trainer import Trainer
from tests.learner.builders import SCREEN, env_spec, random_unrolls, seeded, with_random_weights

COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
NO_COMPILER = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

SPEC = env_spec(SCREEN)
NETWORK = NetworkConfig(torso="small_conv", lstm_size=4, frame_stack=2, center_images=True)


@NO_COMPILER
@pytest.mark.slow
def test_compiled_update_equals_the_plain_one() -> None:
    """Weights after three updates, with parts of a batch on two threads; and the names of
    what is saved stay."""
    agent = VTraceAgent(SPEC, NETWORK, VTraceConfig(unroll_length=3))
    config, trainers = OptimizerConfig(learning_rate=0.01), []
    for compile_torsos in (False, True):
        network = with_random_weights(agent.build_network())
        trainer = Trainer(agent, network, config, Metrics(), 2, compile_torsos=compile_torsos)
        for number in range(3):
            state = agent.initial_state(5, torch.device("cpu"))
            unrolls = random_unrolls(SPEC, 4, 5, state, seeded(number))
            trainer.train_step(Batch(unrolls), learner_step=number, progress=0)
        trainers.append(trainer)
    plain, compiled = (trainer.network.state_dict() for trainer in trainers)
    assert plain.keys() == compiled.keys()
    for name, expected in plain.items():
        torch.testing.assert_close(compiled[name], expected, rtol=1e-4, atol=1e-5, msg=name)
    # Else nothing was compared.
    for network in trainers[1]._gradients._networks:
        (torso,) = (m for m in network.modules() if isinstance(m, Torso))
        assert torso._compiled_call_impl is not None
    for trainer in trainers:
        trainer.close()
