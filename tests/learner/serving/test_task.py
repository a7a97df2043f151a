"""What an actor that asks is told to run."""

from learner.config.run_config import ActorConfig
from learner.serving.task import make_task
from seed import wire
from seed.env_config import EnvConfig, env_settings_from_json


def test_task_holds_the_environment_and_the_groups() -> None:
    """All that an actor needs to know; the seed is the caller's."""
    env = EnvConfig(env_id="seed/Recall-v0", env_kwargs='{"length": 40}')
    task = make_task(env, ActorConfig(envs_per_group=3, num_groups=4), base_seed=7)
    assert task.protocol_version == wire.PROTOCOL_VERSION
    assert (task.env_id, task.envs_per_group, task.num_groups) == ("seed/Recall-v0", 3, 4)
    assert env_settings_from_json(task.env_settings_json) == env
    assert task.base_seed == 7
