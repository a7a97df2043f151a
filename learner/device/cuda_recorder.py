"""CUDA graphs, recorded on the stream on which they are repeated.

PyTorch's notes on CUDA graphs ask for some calls before the recording, in which libraries choose
and set up their kernels. The recording itself runs nothing on the device.
"""

from collections.abc import Callable
from typing import TypeVar

import torch

Record = TypeVar("Record")

_NUM_WARM_UP_CALLS = 3


class CudaRecorder:
    """See `learner.device.recorders.Recorder`.

    The graphs share one pool of memory, as they never run side by side. Each graph keeps
    the memory of its results for as long as it can be repeated.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, function: Callable[[], Record]) -> Callable[[], Record]:
        """Records on the current stream, which must not be the default one."""
        stream = torch.cuda.current_stream(self._generator.device)
        for _ in range(_NUM_WARM_UP_CALLS):
            function()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self._generator)
        # Other threads train meanwhile, with calls that are forbidden in a recording.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"
        ):
            results = function()

        def repeat() -> Record:
            graph.replay()
            return results

        return repeat
