"""ALE/* games through ale-py's native vectorised emulator, every default set by name.

Used by `envs.py`. Leaves frame stacking and reward clipping to the learner: only the newest
frame travels, and episode returns are the game's own.
"""

from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from seed.cores import usable_cores
from seed.env_config import AtariConfig
from seed.errors import ConfigError, expected

# Without this ALE writes a greeting to stderr for each environment.
ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)

# Emulated frames per second of the console.
FRAMES_PER_S = 60


def make_atari(game: str, config: AtariConfig, *, num_envs: int, num_threads: int) -> VectorEnv:
    """Returns `num_envs` games.

    Args:
      game: ROM name ("ms_pacman").
      config: the game's settings.
      num_envs: games that step together.
      num_threads: threads that step them, at most as many as there are usable cores.
    """
    emulator = AtariVectorEnv(
        game,
        num_envs,
        batch_size=num_envs,
        num_threads=min(num_threads, usable_cores()),
        thread_affinity_offset=-1,
        max_num_frames_per_episode=config.max_frames_per_episode,
        repeat_action_probability=config.repeat_action_probability,
        full_action_space=config.full_action_space,
        continuous=False,
        autoreset_mode=AutoresetMode.NEXT_STEP,
        img_height=config.screen_size,
        img_width=config.screen_size,
        grayscale=config.grayscale,
        stack_num=1,
        frameskip=config.frame_skip,
        maxpool=config.max_pool,
        noop_max=config.noop_max,
        # `episodic_life` resets the game at each lost life. `life_loss_info` does as in
        # the papers: the row is terminated, and the game goes on.
        episodic_life=False,
        life_loss_info=config.life_loss_terminal,
        reward_clipping=False,
        use_fire_reset=False,
    )
    return _Screens(emulator, games_outlive_terminated=config.life_loss_terminal)


class _Screens(VectorWrapper):
    """Drops the frame-stack axis of 1; with life-loss terminals adds info["is_first"].

    A game's first frame number, frame_number - episode_frame_number, is constant in one
    game and changes with every reset. Nothing else tells a lost life from the end of the
    game: `terminated` marks both, and some games go on at 0 lives.
    """

    def __init__(self, env: AtariVectorEnv, *, games_outlive_terminated: bool) -> None:
        super().__init__(env)
        stacked = env.single_observation_space
        assert isinstance(stacked, spaces.Box)
        self.single_observation_space = spaces.Box(0, 255, stacked.shape[1:], np.uint8)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._games_outlive_terminated = games_outlive_terminated
        self._game_starts = np.zeros(env.num_envs, np.int32)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts E new games; returns (uint8 [E, H, W] or [E, H, W, 3], info)."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._game_starts = _game_starts(info)
        return observation[:, 0], info

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Applies int64 [E] actions, which must be in range: ale-py waits forever otherwise."""
        observation, rewards, terminated, truncated, info = self.env.step(actions)
        if self._games_outlive_terminated:
            game_starts = _game_starts(info)
            info["is_first"] = game_starts != self._game_starts
            self._game_starts = game_starts
        return observation[:, 0], rewards, terminated, truncated, info


def _game_starts(info: dict[str, Any]) -> np.ndarray:
    return info["frame_number"] - info["episode_frame_number"]


def make_rendered_atari(env_id: str, config: AtariConfig) -> gymnasium.Env:
    """Returns one game that has the same observations and can be rendered in colour.

    It takes half as long again as the vectorised emulator. It starts with 1 to
    noop_max - 1 no-ops; the vectorised one starts with 0 to noop_max - 1.
    """
    if config.frame_skip > 1 and not config.max_pool:
        raise ConfigError(expected("max_pool", "True with video", config.max_pool))
    env = gymnasium.make(
        env_id,
        render_mode="rgb_array",
        frameskip=1,
        repeat_action_probability=config.repeat_action_probability,
        full_action_space=config.full_action_space,
        max_num_frames_per_episode=config.max_frames_per_episode,
    )
    env.metadata = {**env.metadata, "render_fps": FRAMES_PER_S / config.frame_skip}
    return gymnasium.wrappers.AtariPreprocessing(
        env,
        noop_max=config.noop_max - 1,
        frame_skip=config.frame_skip,
        screen_size=config.screen_size,
        # A video shows a whole game; only training marks lost lives.
        terminal_on_life_loss=False,
        grayscale_obs=config.grayscale,
        grayscale_newaxis=False,
        scale_obs=False,
    )
