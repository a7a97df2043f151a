"""Which environment to step, and its settings: the part of a learner's task that actors read.

Read by both sides. Travels as the JSON of `Task.env_settings_json`.
"""

import dataclasses
import json
from typing import Any

from seed.errors import ConfigError, expected, require
from seed.serialization import structure, unstructure

ATARI_PREFIX = "ALE/"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtariConfig:
    """Settings of ALE/* environments; others ignore them. Defaults follow Machado
    et al. 2018 (sticky actions, full action set, no life-loss terminals)."""

    repeat_action_probability: float = 0.25
    """Probability that the emulator repeats the previous action (sticky actions)."""
    full_action_space: bool = True
    """All 18 actions, rather than the game's own minimal set."""
    frame_skip: int = 4
    """Emulator frames an action is held for; one env step is this many frames."""
    max_pool: bool = True
    """Observe the maximum of the last two frames (removes sprite flicker)."""
    noop_max: int = 1
    """A game starts with 0 to noop_max - 1 no-op frames, uniformly."""
    life_loss_terminal: bool = False
    """Mark the loss of a life as terminated; the game itself goes on."""
    max_frames_per_episode: int = 108_000
    """Emulator frames after which a game is truncated (30 minutes of play)."""
    screen_size: int = 84
    """Height and width of the observed screen, in pixels."""
    grayscale: bool = True
    """Observe luminance [H, W] rather than colour [H, W, 3]."""

    def __post_init__(self) -> None:
        probability = self.repeat_action_probability
        require(0 <= probability < 1, "repeat_action_probability", "[0, 1)", probability)
        require(self.frame_skip >= 1, "frame_skip", "at least 1", self.frame_skip)
        # Pooling the only two frames of a skip of 1 would freeze the screen.
        if self.max_pool:
            require(self.frame_skip >= 2, "frame_skip", "at least 2 with max_pool", self.frame_skip)
        require(self.noop_max >= 1, "noop_max", "at least 1", self.noop_max)
        require(self.screen_size >= 8, "screen_size", "at least 8", self.screen_size)
        frames = self.max_frames_per_episode
        require(frames >= self.frame_skip, "max_frames_per_episode", "at least frame_skip", frames)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Which environment, and how it is set up. Sent to actors as JSON."""

    env_id: str = "CartPole-v1"
    """Registered Gymnasium id. "ALE/..." takes the native vectorised emulator."""
    env_kwargs: str = "{}"
    """JSON object of further keyword arguments of `gymnasium.make`."""
    max_episode_steps: int | None = None
    """Env steps after which an episode is truncated, for environments whose episodes need not
    end. None: only the environment's own limit, which otherwise still holds."""
    atari: AtariConfig = AtariConfig()

    def __post_init__(self) -> None:
        require(bool(self.env_id), "env_id", "a registered environment id", self.env_id)
        steps = self.max_episode_steps
        require(steps is None or steps >= 1, "max_episode_steps", "at least 1", steps)
        kwargs = self.make_kwargs
        if self.is_atari:
            wanted = "{} for ALE/* (use the named flags; others, such as mode, are not supported)"
            require(not kwargs, "env_kwargs", wanted, kwargs)

    @property
    def is_atari(self) -> bool:
        """Whether the native emulator steps it. The actor refuses ALE's games by other ids."""
        return self.env_id.rpartition(":")[2].startswith(ATARI_PREFIX)

    @property
    def make_kwargs(self) -> dict[str, Any]:
        """`env_kwargs` parsed; raises ConfigError if it is not a JSON object."""
        try:
            kwargs = json.loads(self.env_kwargs)
        except (ValueError, RecursionError) as error:
            raise ConfigError(expected("env_kwargs", "a JSON object", self.env_kwargs)) from error
        require(isinstance(kwargs, dict), "env_kwargs", "a JSON object", self.env_kwargs)
        return kwargs

    @property
    def frames_per_step(self) -> int:
        """Emulator frames in one env step."""
        return self.atari.frame_skip if self.is_atari else 1


def env_settings_to_json(env: EnvConfig) -> str:
    """Returns `env` as the JSON object of `Task.env_settings_json`."""
    return json.dumps(unstructure(env), allow_nan=False)


def env_settings_from_json(text: str) -> EnvConfig:
    """Returns the settings in `text`; an unknown key or wrong type is a ConfigError."""
    try:
        plain = json.loads(text)
    # Numbers of thousands of digits (ValueError) and deeply nested brackets (RecursionError).
    except (ValueError, RecursionError) as error:
        raise ConfigError(expected("env_settings_json", "JSON", error)) from error
    return structure(plain, EnvConfig, "env_settings_json")
