"""Writes the first full episode of one environment to an mp4 file.

Wraps the environment, in the actor's main thread. The only part of an actor that needs
OpenCV.
"""

from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from seed.errors import ConfigError, expected

_DEFAULT_FRAMES_PER_S = 30


class RecordFirstEpisode(gymnasium.Wrapper):
    """Records one episode, from its reset to its end. A reset before the end starts over."""

    def __init__(self, env: gymnasium.Env, path: Path) -> None:
        super().__init__(env)
        try:
            import cv2
        except ImportError as error:
            raise ConfigError("video: needs OpenCV; pip install 'seed-rl[video]'") from error
        self._cv2 = cv2
        self._path = path
        self._writer: Any = None
        self._finished = False

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Resets; starts the file unless it already holds a full episode."""
        result = self.env.reset(**kwargs)
        if not self._finished:
            self._release()
            self._add_frame()
        return result

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Steps; adds a frame until the first full episode ends."""
        result = self.env.step(action)
        if self._writer is not None:
            self._add_frame()
            if result[2] or result[3]:
                self._release()
                self._finished = True
        return result

    def close(self) -> None:
        """Finishes the file with the frames so far."""
        self._release()
        super().close()

    def _add_frame(self) -> None:
        try:
            frame: Any = self.env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            raise ConfigError(f"video: the environment cannot render: {error}") from error
        if not isinstance(frame, np.ndarray):
            raise ConfigError(expected("video", "an environment that renders frames", frame))
        if self._writer is None:
            self._writer = self._open(frame.shape)
        self._writer.write(np.ascontiguousarray(frame[..., ::-1]))  # RGB -> OpenCV's BGR

    def _open(self, shape: tuple[int, ...]) -> Any:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        frames_per_s = float(self.env.metadata.get("render_fps") or _DEFAULT_FRAMES_PER_S)
        codec = self._cv2.VideoWriter.fourcc(*"mp4v")
        size = (shape[1], shape[0])
        writer = self._cv2.VideoWriter(str(self._path), codec, frames_per_s, size)
        if not writer.isOpened():
            raise ConfigError(f"video: cannot write {self._path}")
        return writer

    def _release(self) -> None:
        if self._writer is not None:
            self._writer.release()
            self._writer = None
