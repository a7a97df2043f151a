"""Reads videos back, for tests."""

from pathlib import Path

import av
import numpy as np


def frames_of(path: Path) -> list[np.ndarray]:
    """Returns the frames of a video, uint8 [H, W, 3]."""
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
