"""A trainer that makes an update only when it is let, and tells what it is given.

Works on a thread of the learner as well as in the trainer process, which a test cannot
reach otherwise: that process imports this module by name.
"""

import functools
import multiprocessing
import queue
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import learner.training.process.handle
from learner.config.run_config import RunConfig
from learner.records import Batch, Unrolls, select_unrolls
from learner.training.process.main import Ends, run_trainer_process
from learner.training.trainer import Trainer
from tests.learner.builders import tensors_of

_LOOK_UP_S = 0.1

TrainStep = Callable[..., Tensor | None]


class Gate:
    """Stands before every update, in whichever process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._permits = context.Semaphore(0)
        self._is_open = context.Event()
        self._arrived = context.Queue()
        self.arrived: list[list[int]] = []
        """Fingerprints of the unrolls of each batch that has come to the gate."""

    def attach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Puts the gate before the trainers that are made from now on."""
        monkeypatch.setattr(Trainer, "train_step", self.before(Trainer.train_step))
        run = functools.partial(_run_trainer_process, self)
        monkeypatch.setattr(learner.training.process.handle, "run_trainer_process", run)

    def before(self, train_step: TrainStep) -> TrainStep:
        """Returns `train_step` with the gate before it."""

        def gated(trainer: Trainer, batch: Batch, **keywords: Any) -> Tensor | None:
            self._arrived.put(fingerprints(batch.newest if batch.newest else batch.unrolls))
            while not self._permits.acquire(timeout=_LOOK_UP_S):
                if self._is_open.is_set():
                    break
            return train_step(trainer, batch, **keywords)

        return gated

    def let_one_through(self) -> None:
        """Allows the update that waits, or the next."""
        self._permits.release()

    def open(self) -> None:
        """Lets the trainer do as it likes."""
        self._is_open.set()

    def see(self) -> int:
        """Returns how many batches have come to the gate; updates `arrived`."""
        try:
            while True:
                self.arrived.append(self._arrived.get(timeout=0))
        except queue.Empty:
            return len(self.arrived)


def fingerprints(unrolls: Unrolls) -> list[int]:
    """Returns a number for each unroll that depends on all that it holds."""
    return [
        zlib.crc32(b"".join(x.contiguous().numpy().tobytes() for x in tensors_of(one)))
        for one in (select_unrolls(unrolls, i, i + 1) for i in range(unrolls.num_unrolls))
    ]


def _run_trainer_process(gate: Gate, config: RunConfig, directory: Path, ends: Ends) -> None:
    Trainer.train_step = gate.before(Trainer.train_step)  # type: ignore[method-assign]
    run_trainer_process(config, directory, ends)
