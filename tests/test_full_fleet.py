"""A learner that serves its maximum of environments: further actors wait for room."""

from pathlib import Path

from learner.serving.limits import Limits
from seed.env_config import EnvConfig
from tests.support.counting_agent import CountingAgent
from tests.support.counting_env import ENV_ID
from tests.support.harness import ActingHarness

# The harness asks each actor for two groups of two.
NUM_ENVS = 4


def test_actor_waits_until_there_is_room_for_it(tmp_path: Path) -> None:
    """It retries while the others step on, and then takes the place of one."""
    with (
        ActingHarness(
            tmp_path,
            EnvConfig(env_id=ENV_ID),
            lambda spec: CountingAgent(5),
            limits=Limits(max_envs=NUM_ENVS),
        ) as harness,
        harness.actor() as first,
    ):
        harness.wait_for_connected(NUM_ENVS)
        with harness.actor("--max-backoff-s", "0.1") as waiting:
            harness.wait_for_tasks(4)
            harness.wait_for_more(10)
            assert waiting.poll() is None
            first.kill()
            first.wait()
            harness.wait_for_more(10)
            assert waiting.poll() is None
