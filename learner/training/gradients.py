"""The gradient of one batch, in parts and on several threads where the device is the CPU.

Small convolutions do not split well over threads inside one operation, but a batch
splits perfectly: each thread takes some of the unrolls through the whole of forward
and backward pass, some hundred rows at once. Used by the trainer thread.
"""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

from learner.agents.base import Agent, LossOutput
from learner.networks import torsos
from learner.records import Batch, Steps, select_unrolls
from learner.training.ranks import Ranks

# Rows that a CPU takes through forward and backward pass at once: more would save too little
# for their memory. Atari, us a transition by unrolls of 21 rows, shallow network: 278
# (4), 252 (8), 231 (16), 222 (32), 219 (48); Nature's: 645 (4), 614 (8), 601 (16), 598 (32).
MAX_ROWS_ON_CPU = 700


class Gradients:
    """Computes gradients of a network's parameters, which it shares with replicas."""

    def __init__(
        self,
        agent: Agent,
        network: nn.Module,
        num_threads: int,
        ranks: Ranks | None = None,
        *,
        compile_torsos: bool = False,
    ) -> None:
        """`num_threads` share this rank's part of each batch."""
        self._agent = agent
        self._ranks = ranks or Ranks()
        self._networks = [network]
        for _ in range(num_threads - 1):
            self._networks.append(_sharing_replica(agent, network))
        if compile_torsos:
            for each in self._networks:
                torsos.compile_torsos(each)
        self._pool = ThreadPoolExecutor(
            max(num_threads - 1, 1),
            thread_name_prefix="gradients",
            initializer=torch.set_num_threads,
            initargs=(torch.get_num_threads(),),
        )

    def compute(
        self, batch: Batch, *, progress: float = 0.0
    ) -> tuple[dict[str, Tensor], Tensor | None]:
        """Sets the gradients of the network's parameters.

        Args:
          batch: unrolls [T + 1, B], the whole batch or this rank's share of it.
          progress: how much of the run is done, in [0, 1].

        Returns:
          The loss's metrics over the whole batch; and the priorities of the given unrolls,
          float32 [B], if the agent has any.
        """
        num_valid = self._agent.num_valid(batch.unrolls)
        self._ranks.sum([num_valid])
        shares = _split(batch, len(self._networks))
        networks = self._networks[: len(shares)]
        # The calling thread takes the first share, or the only one.
        others = [
            self._pool.submit(self._backward, network, share, num_valid, progress)
            for network, share in zip(networks[1:], shares[1:], strict=True)
        ]
        results = self._backward(networks[0], shares[0], num_valid, progress)
        for other in others:
            results += other.result()
        for replica in networks[1:]:
            _add_gradients(self._networks[0], replica)
        metrics = {name: _sum([r.metrics[name] for r in results]) for name in results[0].metrics}
        self._ranks.sum([*_gradients_of(self._networks[0]), *metrics.values()])
        priorities = [r.priorities for r in results if r.priorities is not None]
        return metrics, torch.cat(priorities) if priorities else None

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    def _backward(
        self, network: nn.Module, share: Batch, num_valid: Tensor, progress: float
    ) -> list[LossOutput]:
        """Sets the gradients of one thread's share; returns its parts' losses, in order."""
        network.zero_grad(set_to_none=True)
        return [
            self._add_backward(network, part, num_valid, progress)
            for part in _split(share, _num_parts(share.unrolls.steps))
        ]

    def _add_backward(
        self, network: nn.Module, part: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        output = self._agent.loss(network, part, num_valid, progress)
        output.loss.backward()
        return output._replace(loss=output.loss.detach())


def _sum(values: list[Tensor]) -> Tensor:
    return torch.stack(values).sum() if len(values) > 1 else values[0]


def _sharing_replica(agent: Agent, network: nn.Module) -> nn.Module:
    """Returns a network with the memory of `network`'s weights, but gradients of its own."""
    replica = agent.build_network()
    for mine, theirs in zip(replica.parameters(), network.parameters(), strict=True):
        mine.data = theirs.data
    for module, original in zip(replica.modules(), network.modules(), strict=True):
        for name, buffer in original.named_buffers(recurse=False):
            module.register_buffer(name, buffer)
    return replica.train()


def _add_gradients(network: nn.Module, replica: nn.Module) -> None:
    for mine, theirs in zip(network.parameters(), replica.parameters(), strict=True):
        if theirs.grad is not None:
            assert mine.grad is not None, "both saw the same graph"
            mine.grad += theirs.grad


def _gradients_of(network: nn.Module) -> list[Tensor]:
    return [p.grad for p in network.parameters() if p.grad is not None]


def _num_parts(steps: Steps) -> int:
    is_first = steps.rows.is_first  # [T + 1, B]
    return 1 if is_first.is_cuda else -(-is_first.numel() // MAX_ROWS_ON_CPU)


def _split(whole: Batch, num_parts: int) -> list[Batch]:
    """Returns at most `num_parts` parts whose sizes differ by at most one."""
    num_unrolls, weights = whole.unrolls.num_unrolls, whole.importance_weights
    num_parts = min(num_parts, num_unrolls)
    bounds = [num_unrolls * part // num_parts for part in range(num_parts + 1)]
    return [
        Batch(
            select_unrolls(whole.unrolls, start, stop),
            None if weights is None else weights[start:stop],
        )
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True)
    ]
