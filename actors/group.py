"""One group of environments: steps it and keeps its episode statistics.

Used by the loop, in the actor's main thread. Leaves transport to the connection, and
making environments to `envs.py`.
"""

import time
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from actors.spaces import SpaceAdapter
from seed.errors import EnvironmentFailedError, SeedError, SpecError, expected
from seed.specs import EnvSpec
from seed.wire import EnvOutputs, Episode


class EnvGroup:
    """E environments that step together and travel in one message.

    Environments reset on the step after the one that ended their episode
    (Gymnasium's NEXT_STEP), so that a final observation is an ordinary row:

        row           t        t+1        t+2        t+3
        observation   o5       o6 (last)  o0 (new)   o1
        reward        r5       r6         0          r1
        terminated or truncated   0        1          0          0
        is_first      0        0          1          0
        episodes                          (return, length) of the row that ended it
        action        a5       ignored    a0         a1

    An environment whose games may go on after `terminated` (ALE with life-loss
    terminals) says in `info["is_first"]`, bool [E], which rows followed a reset.
    Only the first row of the next game shows that a game is over. So the statistics
    travel with that row (t+2), and span all lives of the game.

    Environments that are still being made say in `info["is_waiting"]`, bool [E], which rows
    they do not fill yet: see `GrowingVectorEnv`. These rows are first rows as well.
    """

    def __init__(self, vector_env: VectorEnv, *, index: int, rng_seed: int) -> None:
        mode = vector_env.metadata.get("autoreset_mode")
        if mode is not AutoresetMode.NEXT_STEP:
            raise SpecError(expected("autoreset_mode", AutoresetMode.NEXT_STEP, mode))
        self._env = vector_env
        self._index = index
        self.rng_seed = rng_seed
        """Seed of the first environment in the first reset; the others follow by one each."""
        # Seeds only the first reset: in ALE a seeded one takes 20 times as long as another.
        self._reset_seed: int | None = rng_seed
        self._adapter = SpaceAdapter(
            vector_env.single_observation_space, vector_env.single_action_space
        )
        self._returns = np.zeros(self.num_envs, np.float64)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._was_done = np.zeros(self.num_envs, bool)
        self._reported_failures = 0
        self._busy_since: float | None = None

    @property
    def index(self) -> int:
        """Number of the group among those of the actor."""
        return self._index

    @property
    def num_envs(self) -> int:
        return self._env.num_envs

    @property
    def num_ready(self) -> int:
        """Environments that are made and reset; the others are to come."""
        return getattr(self._env, "num_ready", self.num_envs)

    @property
    def failures(self) -> int:
        """How often an environment of the group has failed so far."""
        return getattr(self._env, "failures", 0)

    def _new_failures(self) -> int:
        """Returns how often an environment has failed since the last call."""
        before, self._reported_failures = self._reported_failures, self.failures
        return self._reported_failures - before

    @property
    def busy_s(self) -> float:
        """Seconds that the present step or reset has taken so far; 0 between two. Any thread."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def busy_with(self) -> str:
        """The group, and the environment that it steps or resets if that is known. Any thread."""
        env = getattr(self._env, "busy_env", None)
        return f"group {self._index}" + ("" if env is None else f", environment {env}")

    @property
    def spec(self) -> EnvSpec:
        """What one environment of the group emits and takes."""
        return self._adapter.spec

    def reset(self) -> EnvOutputs:
        """Starts a new episode in every environment; drops the statistics of unfinished ones."""
        observation, _ = self._guarded(self._env.reset, seed=self._reset_seed)
        self._reset_seed = None
        self._returns.fill(0)
        self._lengths.fill(0)
        self._was_done.fill(False)
        nothing = np.zeros(self.num_envs, bool)
        return EnvOutputs(
            group=self._index,
            observations=self._adapter.flatten(observation),
            rewards=np.zeros(self.num_envs, np.float32),
            is_first=np.ones(self.num_envs, bool),
            terminated=nothing,
            truncated=nothing,
            failures=self._new_failures(),
        )

    def step(self, actions: np.ndarray) -> EnvOutputs:
        """Applies `actions`, int64 [E]; ignores those chosen from an episode's last row.

        Raises:
          SpecError: an action out of range.
          EnvironmentFailedError: the environment raised and cannot be replaced.
        """
        observation, rewards, terminated, truncated, info = self._guarded(
            self._env.step, self._adapter.env_actions(actions)
        )
        done = terminated | truncated
        is_first = info.get("is_first", self._was_done)
        over = is_first if "is_first" in info else done
        if "is_waiting" in info:
            is_first = is_first | info["is_waiting"]
        rewards = np.where(is_first, 0, rewards)
        self._was_done = done
        return EnvOutputs(
            group=self._index,
            observations=self._adapter.flatten(observation),
            rewards=rewards.astype(np.float32),
            is_first=is_first,
            terminated=terminated,
            truncated=truncated,
            episodes=self._count(rewards, is_first, over),
            failures=self._new_failures(),
        )

    def close(self) -> None:
        self._env.close()

    def _count(self, rewards: np.ndarray, is_first: np.ndarray, over: np.ndarray) -> list[Episode]:
        """Adds a step to the statistics; returns the episodes that it completed."""
        self._returns += rewards
        self._lengths += ~is_first
        if not over.any():
            return []
        episodes = [
            Episode(int(env), float(self._returns[env]), int(self._lengths[env]))
            for env in np.flatnonzero(over)
        ]
        self._returns[over] = 0
        self._lengths[over] = 0
        return episodes

    def _guarded(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        self._busy_since = time.monotonic()
        try:
            return call(*args, **kwargs)
        except SeedError:
            raise
        except Exception as error:
            raise EnvironmentFailedError(f"group {self._index}: {error!r}") from error
        finally:
            self._busy_since = None
