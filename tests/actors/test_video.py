"""actors/video.py records the first full episode, in a file that plays."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from actors.envs import make_group, make_video_group
from actors.vectorisation import SyncVectorEnv
from actors.video import RecordFirstEpisode
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError

cv2 = pytest.importorskip("cv2")


class Rendered(gymnasium.Env):
    """Three-step episodes; the n-th frame since the first reset has brightness 20 n."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)
    metadata = {"render_fps": 10}

    def __init__(self) -> None:
        self._frames = 0
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[int, dict]:
        self._steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self._steps += 1
        return 0, 0.0, self._steps == 3, False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        self._frames += 1
        return np.full((32, 48, 3), 20 * self._frames, np.uint8)


def _frames(path: Path) -> list[np.ndarray]:
    video, frames = cv2.VideoCapture(str(path)), []
    while (read := video.read())[0]:
        frames.append(read[1])
    return frames


def test_first_full_episode_is_recorded_and_no_more(tmp_path: Path) -> None:
    """The file has the first observation and every step of the episode, and nothing later."""
    path = tmp_path / "new" / "video.mp4"
    env = RecordFirstEpisode(Rendered(), path)
    for _ in range(2):
        env.reset()
        for _ in range(3):
            env.step(0)
    env.close()
    frames = _frames(path)
    assert [round(frame.mean() / 20) for frame in frames] == [1, 2, 3, 4]
    assert frames[0].shape == (32, 48, 3)


def test_reset_before_the_end_starts_the_recording_over(tmp_path: Path) -> None:
    """A lost connection leaves no half episode in the file."""
    env = RecordFirstEpisode(Rendered(), tmp_path / "video.mp4")
    env.reset()
    env.step(0)
    env.reset()
    for _ in range(3):
        env.step(0)
    env.close()
    assert [round(frame.mean() / 20) for frame in _frames(tmp_path / "video.mp4")] == [3, 4, 5, 6]


def test_environment_that_cannot_render_is_refused(tmp_path: Path) -> None:
    """The error says what the environment lacks, and does not count as its failure."""

    class Unrendered(Rendered):
        def render(self) -> np.ndarray:
            raise gymnasium.error.DependencyNotInstalled("install pygame")

    env = SyncVectorEnv(lambda: RecordFirstEpisode(Unrendered(), tmp_path / "video.mp4"), 1)
    with pytest.raises(ConfigError, match="video: the environment cannot render: install pygame"):
        env.reset()


def test_any_renderable_environment_can_be_recorded(tmp_path: Path) -> None:
    """An id is enough: Catch has ten frames, the first observation and nine steps."""
    config = EnvConfig(env_id="seed/Catch-v0")
    group = make_video_group(config, tmp_path / "video.mp4", base_seed=1)
    group.reset()
    for _ in range(12):
        group.step(np.zeros(1, np.int64))
    group.close()
    assert [frame.shape for frame in _frames(tmp_path / "video.mp4")] == [(160, 80, 3)] * 10


def test_missing_opencv_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without OpenCV the actor says which package to install."""
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ConfigError, match=r"seed-rl\[video\]"):
        RecordFirstEpisode(Rendered(), tmp_path / "video.mp4")


def test_recorded_game_has_the_observations_of_the_native_emulator(tmp_path: Path) -> None:
    """The policy sees the same pixels as in training, and the file is in colour."""
    config = EnvConfig(
        env_id="ALE/Breakout-v5",
        atari=AtariConfig(max_frames_per_episode=400, repeat_action_probability=0),
    )
    native = make_group(config, index=0, num_envs=1, base_seed=1)
    recorded = make_video_group(config, tmp_path / "video.mp4", base_seed=1)
    assert native.spec == recorded.spec
    rows = [(native.reset(), recorded.reset())]
    random = np.random.default_rng(1)
    for _ in range(100):
        action = random.integers(0, 18, 1)
        rows.append((native.step(action), recorded.step(action)))
    for mine, theirs in rows:
        np.testing.assert_array_equal(mine.observations[0], theirs.observations[0])
        assert mine.truncated == theirs.truncated
    recorded.close()
    frames = _frames(tmp_path / "video.mp4")
    assert len(frames) == 101
    assert frames[0].shape == (210, 160, 3)
