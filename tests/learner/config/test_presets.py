"""What the presets promise beyond being valid configs."""

from learner.config.agent_config import R2D2Config
from learner.config.presets import PRESETS


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
