"""Learners that train one network together, each on its share of every batch.

torchrun starts one process a rank and tells each its place by environment variables. All
that ranks agree on goes through here; for a single learner that costs nothing. The trainer
thread joins the ranks and adds up; other threads read the place.
"""

import dataclasses
import datetime
import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from learner.config.run_config import RunConfig
from learner.config.torchrun import Place
from seed.errors import CheckpointError, expected

# A rank may wait this long for the others: for their first actor, or while they save.
_TIMEOUT = datetime.timedelta(days=7)


class Ranks:
    """All ranks, seen from one of them."""

    def __init__(self, place: Place | None = None) -> None:
        """`place` None means a single learner."""
        place = place or Place()
        self.place = place
        self.rank, self.size = place.rank, place.size
        self.is_first = place.rank == 0
        """Whether this one keeps the run's files."""
        self._joined = place.size == 1

    @property
    def joined(self) -> bool:
        """Whether all ranks have joined, so that `sum` and the like can be called."""
        return self._joined

    def join(self, network: nn.Module, learner_step: int) -> None:
        """Waits for the other ranks and takes over the weights of the first.

        Args:
          network: on the device that trains.
          learner_step: updates that the network has had.

        Raises:
          CheckpointError: not all ranks resumed the same checkpoint.
        """
        if self._joined:
            return
        tensors = [*network.parameters(), *network.buffers()]
        on_gpu = bool(tensors) and tensors[0].is_cuda
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            store=_own_store(self.rank, self.size),
            rank=self.rank,
            world_size=self.size,
            timeout=_TIMEOUT,
        )
        self._joined = True
        steps = torch.tensor([learner_step, -learner_step], device=tensors[0].device)
        dist.all_reduce(steps, dist.ReduceOp.MAX)
        newest, oldest = steps[0].item(), -steps[1].item()
        if newest != oldest:
            wanted = f"the same checkpoint on all {self.size} ranks"
            raise CheckpointError(expected("learner_step", wanted, f"{oldest} to {newest}"))
        for tensor in tensors:
            dist.broadcast(tensor.data, src=0)

    def leave(self) -> None:
        """Leaves the group of ranks, at the end of training."""
        if self.size > 1 and self._joined:
            dist.destroy_process_group()

    def total(self, count: int) -> int:
        """Returns the sum of all ranks' counts."""
        if self.size == 1:
            return count
        counts = torch.tensor([count], device=self._device)
        dist.all_reduce(counts)
        return int(counts.item())

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Adds up tensors over the ranks, in place; all of them in one message."""
        if self.size == 1:
            return
        held = list(tensors)
        flat = torch.cat([x.detach().reshape(-1) for x in held])
        dist.all_reduce(flat)
        for x, summed in zip(held, flat.split([x.numel() for x in held]), strict=True):
            x.detach().copy_(summed.view_as(x))

    def average_buffers(self, network: nn.Module) -> None:
        """Replaces running statistics, of which each rank saw its own share, by their mean."""
        if self.size == 1:
            return
        buffers = [x for x in network.buffers() if x.is_floating_point()]
        if buffers:
            self.sum(buffers)
            for x in buffers:
                x /= self.size

    @property
    def _device(self) -> str:
        return "cuda" if dist.get_backend() == "nccl" else "cpu"


def _own_store(rank: int, size: int) -> PrefixStore:
    """Returns the store in which the ranks leave their addresses for each other.

    torchrun keeps one store for all restarts. Without a prefix for each restart, an early rank
    would find the address that another rank had before it.
    """
    store, _, _ = next(rendezvous("env://", rank, size, timeout=_TIMEOUT))
    return PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)


def share_of(config: RunConfig, ranks: Ranks) -> RunConfig:
    """Returns one rank's share of a run; see `AgentConfig.share`.

    Raises:
      ConfigError: a batch that the ranks cannot share evenly.
    """
    if ranks.size == 1:
        return config
    return dataclasses.replace(config, agent=config.agent.share(ranks.size))
