"""A trainer that makes an update only when the test allows it, and tells what it gets.

Works on a thread of the learner as well as in the trainer process, which a test cannot
reach otherwise: that process imports this module by name.
"""

import functools
import multiprocessing
import queue
import zlib
from collections.abc import Callable

import pytest

import learner.training.loop
import learner.training.process.handle
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from learner.experience.base import Experience, Sample
from learner.records import Unrolls, select_unrolls
from learner.training.loop import _next_batch
from learner.training.process.main import Ends, run_trainer_process
from tests.learner.builders import tensors_of

_LOOK_UP_S = 0.1

NextBatch = Callable[[Experience], Sample | None]


class Gate:
    """Stands before every update, in the learner process or the trainer process."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._permits = context.Semaphore(0)
        self._is_open = context.Event()
        self._arrived = context.Queue()
        self.arrived: list[list[int]] = []
        """Fingerprints of the unrolls of each batch that has come to the gate."""

    def attach(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Puts the gate before the trainers that are made from now on."""
        monkeypatch.setattr(learner.training.loop, "_next_batch", self.after(_next_batch))
        run = functools.partial(_run_trainer_process, self)
        monkeypatch.setattr(learner.training.process.handle, "run_trainer_process", run)

    def after(self, next_batch: NextBatch) -> NextBatch:
        """Returns `next_batch` with the gate between it and the update."""

        def gated(experience: Experience) -> Sample | None:
            sample = next_batch(experience)
            if sample is not None:
                self._arrived.put(fingerprints(sample.newest or sample.batch.unrolls))
                while not self._permits.acquire(timeout=_LOOK_UP_S):
                    if self._is_open.is_set():
                        break
            return sample

        return gated

    def let_one_through(self) -> None:
        """Allows the update that waits, or the next."""
        self._permits.release()

    def open(self) -> None:
        """Lets every further update through."""
        self._is_open.set()

    def see(self) -> int:
        """Returns how many batches have come to the gate, and updates `arrived`."""
        try:
            while True:
                self.arrived.append(self._arrived.get(timeout=0))
        except queue.Empty:
            return len(self.arrived)


def fingerprints(unrolls: Unrolls) -> list[int]:
    """Returns a number for each unroll that depends on all of its tensors."""
    return [
        zlib.crc32(b"".join(x.contiguous().numpy().tobytes() for x in tensors_of(one)))
        for one in (select_unrolls(unrolls, i, i + 1) for i in range(unrolls.num_unrolls))
    ]


def _run_trainer_process(gate: Gate, config: RunConfig, run_dir: RunDir, ends: Ends) -> None:
    learner.training.loop._next_batch = gate.after(_next_batch)
    run_trainer_process(config, run_dir, ends)
