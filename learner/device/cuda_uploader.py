"""Uploads on a stream of their own: they do not wait for updates that are queued on the GPU."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from learner.records import map_tensors


class CudaUploader:
    """See `learner.device.uploaders.Uploader`."""

    needs_pinned_memory = True

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)

    def upload(self, record: Any) -> Any:
        with torch.cuda.stream(self._stream):
            uploaded = map_tensors(lambda x: x.to(self._device, non_blocking=True), record)
        self._stream.synchronize()
        return uploaded

    def claim(self, tensors: Iterable[Tensor]) -> None:
        # Their memory must not go to the next upload before the reader's stream has used them.
        reader = torch.cuda.current_stream(self._device)
        for tensor in tensors:
            tensor.record_stream(reader)
