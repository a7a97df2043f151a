"""Frames -> a video file that browsers play. The only part of an actor that needs PyAV.

Called in the actor's main thread. PyAV's wheels hold FFmpeg with the encoders for H.264 and VP9.
OpenCV's have none for H.264, and their MPEG-4 part 2 plays in no browser.
"""

import importlib
import math
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from seed.errors import ConfigError, expected
from seed.video_path import CODECS

_DEFAULT_FRAMES_PER_S = 30
_MAX_FRAMES_PER_S = 240

# A quality at which hard edges stay hard; lower numbers are better.
_OPTIONS = {
    "libx264": {"crf": "18"},
    "libvpx-vp9": {"crf": "24", "b": "0", "deadline": "good", "cpu-used": "4"},
}


class VideoFile:
    """One video, from its first frame to `close`. It has its name once it is complete."""

    def __init__(self, path: Path, frames_per_s: object) -> None:
        """Opens nothing yet.

        Args:
          path: ends in .mp4 or .webm.
          frames_per_s: from an environment's metadata; 30 where it is no usable number.

        Raises:
          ConfigError: PyAV is not installed.
        """
        self._av = require_package("av")
        self._path = path
        self._aside = path.with_name(f"{path.name}.part")
        self._rate = _rate(frames_per_s)
        self._container: Any = None
        self._stream: Any = None
        self._shape: tuple[int, ...] = ()

    def add(self, frame: object) -> None:
        """Appends a frame: uint8 [H, W, 3], [H, W, 4] or [H, W].

        Raises:
          ConfigError: no such frame, one of another size, or a file that cannot be written.
        """
        pixels = _to_rgb(frame)
        if self._container is None:
            self._shape = pixels.shape
            self._guarded(self._open)
        if pixels.shape != self._shape:
            wanted = f"frames of one size, {list(self._shape)}"
            raise ConfigError(expected("video", wanted, list(pixels.shape)))
        picture = self._av.VideoFrame.from_ndarray(_to_even_size(pixels), format="rgb24")
        self._guarded(lambda: self._container.mux(self._stream.encode(picture)))

    def close(self) -> None:
        """Completes the file, if there is a frame; may be called again."""
        if self._container is not None:
            self._guarded(self._finish)
            self._container = None

    def _open(self) -> None:
        suffix = self._path.suffix.lower()
        codec = CODECS[suffix]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # faststart: the index comes first, so that a browser plays the file as it loads.
        self._container = self._av.open(
            str(self._aside),
            "w",
            format=suffix.removeprefix("."),
            options={"movflags": "+faststart"} if suffix == ".mp4" else {},
        )
        self._stream = self._container.add_stream(codec, rate=self._rate, options=_OPTIONS[codec])
        height, width = self._shape[0], self._shape[1]
        self._stream.height, self._stream.width = height + height % 2, width + width % 2
        self._stream.pix_fmt = "yuv420p"

    def _finish(self) -> None:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        os.replace(self._aside, self._path)

    def _guarded(self, call: Any) -> None:
        try:
            call()
        except (OSError, ValueError, self._av.error.FFmpegError) as error:
            raise ConfigError(f"video: cannot write {self._path}: {error}") from error


def require_package(name: str) -> Any:
    """Returns a package of the extra `video`. Raises ConfigError if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"video: needs the package {name}; in the checkout: pip install -e '.[video]'"
        ) from error


def _rate(frames_per_s: object) -> Fraction:
    usable = isinstance(frames_per_s, int | float) and math.isfinite(frames_per_s)
    if not usable or not 0 < frames_per_s <= _MAX_FRAMES_PER_S:  # pyright: ignore[reportOperatorIssue]
        return Fraction(_DEFAULT_FRAMES_PER_S)
    return Fraction(frames_per_s).limit_denominator(1001)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _to_rgb(frame: object) -> np.ndarray:
    """Returns uint8 [H, W, 3]."""
    if isinstance(frame, np.ndarray) and frame.dtype == np.uint8 and frame.size:
        match frame.shape:
            case (_, _):
                return np.repeat(frame[..., None], 3, axis=2)
            case (_, _, 1):
                return np.repeat(frame, 3, axis=2)
            case (_, _, 3 | 4):
                return np.ascontiguousarray(frame[..., :3])
    got = f"{frame.dtype} {list(frame.shape)}" if isinstance(frame, np.ndarray) else repr(frame)
    raise ConfigError(expected("video", "frames that are uint8 [H, W, 3]", got))


def _to_even_size(pixels: np.ndarray) -> np.ndarray:
    """Repeats the last row and column where needed: colours are stored for 2 x 2 pixels."""
    height, width, _ = pixels.shape
    return np.pad(pixels, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
