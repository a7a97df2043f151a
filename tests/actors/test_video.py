"""The first full episode is recorded, of any environment that can render."""

import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from actors.envs import check_video, make_group, make_video_group
from actors.vectorisation import SyncVectorEnv
from actors.video import FirstEpisode, RecordFirstEpisode
from seed.env_config import AtariConfig, EnvConfig
from seed.errors import ConfigError
from tests.actors.videos import frames_of


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


def recorded(env: gymnasium.Env, path: Path) -> RecordFirstEpisode:
    """Returns the environment with a recording of its own."""
    return RecordFirstEpisode(env, FirstEpisode(path))


def test_first_full_episode_is_recorded_and_no_more(tmp_path: Path) -> None:
    """The file has the first observation and every step of the episode, and nothing later."""
    path = tmp_path / "new" / "video.mp4"
    env = recorded(Rendered(), path)
    for _ in range(2):
        env.reset()
        for _ in range(3):
            env.step(0)
    env.close()
    frames = frames_of(path)
    assert [round(frame.mean() / 20) for frame in frames] == [1, 2, 3, 4]
    assert frames[0].shape == (32, 48, 3)


def test_reset_before_the_end_starts_the_recording_over(tmp_path: Path) -> None:
    """A lost connection leaves no half episode in the file."""
    env = recorded(Rendered(), tmp_path / "video.mp4")
    env.reset()
    env.step(0)
    env.reset()
    for _ in range(3):
        env.step(0)
    env.close()
    assert [round(frame.mean() / 20) for frame in frames_of(tmp_path / "video.mp4")] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            gymnasium.error.DependencyNotInstalled("install pygame"),
            "video: the environment cannot render: install pygame; "
            "in the checkout, pip install -e '.[video]' brings pygame",
        ),
        (RuntimeError("no display"), "video: the environment cannot render: no display"),
    ],
)
def test_environment_that_cannot_render_is_refused(
    tmp_path: Path, error: Exception, message: str
) -> None:
    """The error says what the environment lacks, and does not count as its failure."""

    class Unrendered(Rendered):
        def render(self) -> np.ndarray:
            raise error

    env = SyncVectorEnv(lambda: recorded(Unrendered(), tmp_path / "video.mp4"), 1)
    with pytest.raises(ConfigError) as caught:
        env.reset()
    assert str(caught.value) == message


def test_any_renderable_environment_can_be_recorded(tmp_path: Path) -> None:
    """An id is enough: Catch has ten frames, the first observation and nine steps."""
    config = EnvConfig(env_id="seed/Catch-v0")
    group = make_video_group(config, tmp_path / "video.mp4", base_seed=1)
    group.reset()
    for _ in range(12):
        group.step(np.zeros(1, np.int64))
    group.close()
    assert [frame.shape for frame in frames_of(tmp_path / "video.mp4")] == [(160, 80, 3)] * 10


def test_cartpole_is_recorded_without_a_display(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README's first environment: it draws with pygame, from the extra `video`."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    config = EnvConfig(env_id="CartPole-v1", max_episode_steps=5)
    group = make_video_group(config, tmp_path / "video.mp4", base_seed=1)
    group.reset()
    for _ in range(5):
        group.step(np.zeros(1, np.int64))
    group.close()
    assert [frame.shape for frame in frames_of(tmp_path / "video.mp4")] == [(400, 600, 3)] * 6


def test_environment_that_is_replaced_later_does_not_overwrite_the_first_episode(
    tmp_path: Path,
) -> None:
    """The file belongs to the recording, not to one of the environments."""

    class Failing(Rendered):
        games = 0

        def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
            if Failing.games == 1 and self._steps == 1:
                Failing.games += 1
                raise RuntimeError("the simulator fell over")
            result = super().step(action)
            Failing.games += result[2]
            return result

    episode = FirstEpisode(tmp_path / "video.mp4")
    env = SyncVectorEnv(lambda: RecordFirstEpisode(Failing(), episode), 1)
    env.reset()
    for _ in range(12):
        env.step(np.zeros(1, np.int64))
    env.close()
    assert env.failures == 1
    assert [round(frame.mean() / 20) for frame in frames_of(tmp_path / "video.mp4")] == [1, 2, 3, 4]


def test_unfinished_episode_is_a_whole_file(tmp_path: Path) -> None:
    """`seed eval` of an endless game is stopped; what was played until then can be watched."""
    env = recorded(Rendered(), tmp_path / "video.mp4")
    env.reset()
    env.step(0)
    env.close()
    assert len(frames_of(tmp_path / "video.mp4")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["video.mp4"]


class NoPicture(Rendered):
    """Renders text only."""

    metadata = {"render_modes": ["ansi", "human"]}


class NoRender(gymnasium.Env):
    """Renders nothing."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)


gymnasium.register("videos/NoPicture-v0", entry_point=f"{__name__}:NoPicture")
gymnasium.register("videos/NoRender-v0", entry_point=f"{__name__}:NoRender")
gymnasium.register("videos/Rendered-v0", entry_point=f"{__name__}:Rendered")
gymnasium.register("videos/Function-v0", entry_point=lambda **_: Rendered())


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        (
            "videos/NoPicture-v0",
            "video: expected an environment with the render mode rgb_array, "
            "got videos/NoPicture-v0 with ['ansi', 'human']",
        ),
        (
            "videos/NoRender-v0",
            "video: expected an environment with the render mode rgb_array, "
            "got videos/NoRender-v0 with none",
        ),
        (
            "seed/Null-v0",
            "video: expected an environment that is registered with an entry_point, "
            "got seed/Null-v0, vectorised only",
        ),
    ],
)
def test_environment_that_says_it_cannot_render_is_refused_before_it_is_made(
    env_id: str, message: str
) -> None:
    """`seed eval` asks before it loads anything."""
    with pytest.raises(ConfigError) as caught:
        check_video(EnvConfig(env_id=env_id))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "env_id",
    ["videos/Rendered-v0", "videos/Function-v0", "CartPole-v1", "FrozenLake-v1", "ALE/Pong-v5"],
)
def test_environment_that_may_render_is_not_refused(env_id: str) -> None:
    """Many environments render without saying so in their metadata."""
    check_video(EnvConfig(env_id=env_id))


@pytest.mark.parametrize(
    ("package", "env_id"), [("av", "CartPole-v1"), ("av", "ALE/Pong-v5"), ("cv2", "ALE/Pong-v5")]
)
def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, env_id: str
) -> None:
    """The advice works: the project itself is on no index."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        check_video(EnvConfig(env_id=env_id))
    advice = "; in the checkout: pip install -e '.[video]'"
    assert str(caught.value) == f"video: needs the package {package}{advice}"


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
    frames = frames_of(tmp_path / "video.mp4")
    assert len(frames) == 101
    assert frames[0].shape == (210, 160, 3)
