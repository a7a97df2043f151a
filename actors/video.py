"""Writes the first full episode of one environment to a video file.

Wraps the environment, in the actor's main thread. `seed eval --video` also checks here, before it
loads anything, that the environment can render.
"""

import os
import sys
from pathlib import Path
from typing import Any, SupportsFloat

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.envs.registration import load_env_creator

from actors.video_file import VideoFile, require_package
from seed.errors import ConfigError, expected

RENDER_MODE = "rgb_array"


class FirstEpisode:
    """The file of the first full episode, also if its environment is replaced after an error."""

    def __init__(self, path: Path) -> None:
        """Opens nothing yet. Raises ConfigError: PyAV is not installed."""
        require_package("av")
        self.path = path
        self.is_complete = False


class RecordFirstEpisode(gymnasium.Wrapper):
    """Records one episode, from its reset to its end. A reset before the end starts over."""

    def __init__(self, env: gymnasium.Env, episode: FirstEpisode) -> None:
        super().__init__(env)
        self._episode = episode
        self._file: VideoFile | None = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Resets; starts the file unless it already holds a full episode."""
        result = self.env.reset(**kwargs)
        if not self._episode.is_complete:
            self._release()
            self._file = VideoFile(self._episode.path, self.env.metadata.get("render_fps"))
            self._file.add(self._first_frame())
        return result

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Steps; adds a frame until the first full episode ends."""
        result = self.env.step(action)
        if self._file is not None:
            self._file.add(self.env.render())
            if result[2] or result[3]:
                self._release()
                self._episode.is_complete = True
        return result

    def close(self) -> None:
        """Finishes the file with the frames so far."""
        self._release()
        super().close()

    def _first_frame(self) -> Any:
        """Renders; what stops that once, a missing package or display, stops it always."""
        try:
            return self.env.render()
        except Exception as error:
            hint = ""
            if isinstance(error, gymnasium.error.DependencyNotInstalled):
                hint = "; in the checkout, pip install -e '.[video]' brings pygame"
            raise ConfigError(f"video: the environment cannot render: {error}{hint}") from error

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def check_can_render(registered: RegisteredEnv) -> None:
    """Raises ConfigError if an environment says that it renders no pictures."""
    require_package("av")
    if registered.entry_point is None:
        wanted = "an environment that is registered with an entry_point"
        raise ConfigError(expected("video", wanted, f"{registered.id}, vectorised only"))
    creator: Any = registered.entry_point
    if isinstance(creator, str):
        creator = load_env_creator(creator)
    if not isinstance(creator, type):
        return  # a function: only the environment that it makes can tell
    modes = list((getattr(creator, "metadata", None) or {}).get("render_modes") or ())
    cannot = getattr(creator, "render", None) is gymnasium.Env.render
    if cannot or (modes and RENDER_MODE not in modes):
        wanted = f"an environment with the render mode {RENDER_MODE}"
        raise ConfigError(expected("video", wanted, f"{registered.id} with {modes or 'none'}"))


def prepare_to_render() -> None:
    """Lets pygame draw where there is no display, and keeps it from greeting on stdout."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    has_display = {"DISPLAY", "WAYLAND_DISPLAY"} & set(os.environ)
    if sys.platform == "linux" and not has_display:
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
