"""The task that the learner sends to an actor."""

from learner.config.run_config import ActorConfig
from seed import wire
from seed.env_config import EnvConfig, env_settings_to_json
from seed.pb import inference_pb2 as pb


def make_task(env: EnvConfig, actor: ActorConfig, *, base_seed: int = 0) -> pb.Task:
    """Returns the answer to `GetTask`; all seeds of one actor derive from `base_seed`."""
    return pb.Task(
        protocol_version=wire.PROTOCOL_VERSION,
        env_id=env.env_id,
        env_settings_json=env_settings_to_json(env),
        envs_per_group=actor.envs_per_group,
        num_groups=actor.num_groups,
        base_seed=base_seed,
    )
