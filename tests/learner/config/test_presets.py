"""What the presets promise beyond being valid configs."""

import pytest

from learner.config.agent_config import R2D2Config
from learner.config.presets import PRESETS, full_preset_name
from seed.errors import ConfigError


def test_hard_memory_task_is_longer_than_a_sequence() -> None:
    """Cue and answer are never in one sequence, so only the stored state can hold the cue."""
    config = PRESETS["memory-hard-r2d2"].config
    assert isinstance(config.agent, R2D2Config)
    rows_from_cue_to_question = config.env.make_kwargs["length"] + 2
    assert config.agent.num_rows < rows_from_cue_to_question


def test_memory_tasks_do_not_show_the_last_action() -> None:
    """An agent that sees its last action could act the cue at once, and repeat it from there."""
    for name in ("memory-r2d2", "memory-hard-r2d2"):
        assert not PRESETS[name].config.network.see_last_step


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("catch", "catch-vtrace"),
        ("CATCH-VTRACE", "catch-vtrace"),
        ("memory_hard_r2d2", "memory-hard-r2d2"),
        ("atari-vtrace", "atari-vtrace"),
        ("my_presets:Catch", "my_presets:Catch"),
    ],
)
def test_preset_is_named_by_its_beginning_or_another_spelling(word: str, name: str) -> None:
    """A preset of a module is taken as it is."""
    assert full_preset_name(word) == name


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("cartpole", "; did you mean `cartpole-r2d2` or `cartpole-vtrace`?"),
        ("cach-vtrace", "; did you mean `catch-vtrace`"),
        ("recall", "; did you mean `memory-r2d2` or `memory-hard-r2d2`?"),
        ("pong", "; did you mean `atari-vtrace` or "),
        ("dqn", ", or module:Name, got 'dqn'"),
    ],
)
def test_preset_that_was_meant_is_suggested(word: str, hint: str) -> None:
    """By its name, or by the environment that it trains on."""
    with pytest.raises(ConfigError) as caught:
        full_preset_name(word)
    message = str(caught.value)
    assert message.startswith("PRESET: expected one of 'catch-vtrace', ") and hint in message
