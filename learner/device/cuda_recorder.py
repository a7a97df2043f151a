"""CUDA graphs, recorded on the stream on which they are repeated.

As PyTorch's notes on CUDA graphs have it: some calls first, in which libraries choose their
kernels and set up what they need; then the recording, of which nothing is run.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

Record = TypeVar("Record")

_NUM_WARM_UP_CALLS = 3


class CudaRecorder:
    """See `learner.device.recorders.Recorder`.

    The graphs share one pool of memory, as they never run side by side. The results of
    each stay its own for as long as it can be repeated.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, function: Callable[[], Record]) -> Callable[[], Record]:
        """To be called on a stream other than the default one."""
        stream = torch.cuda.current_stream(self._generator.device)
        for _ in range(_NUM_WARM_UP_CALLS):
            function()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        # Other threads train meanwhile, and may ask of the device what a recording may not.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"
        ):
            results = function()

        def repeat() -> Record:
            graph.replay()
            return results

        return repeat
