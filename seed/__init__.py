"""Deep reinforcement learning with central inference.

For Python programs; everything else is in the packages:

    import seed

    result = seed.train(config, run_dir="runs/mine")
    policy = seed.load_policy(result.run_dir)

Importing this package imports nothing heavy: an actor's machine has no torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from learner.api import TrainResult
    from learner.config.run_config import RunConfig
    from learner.policy import Policy


def load_policy(
    run: Path | str,
    *,
    checkpoint: str | int | None = None,
    device: str = "auto",
    rng_seed: int = 0,
) -> "Policy":
    """Returns the policy of a run or a checkpoint; see `learner.policy.load_policy`."""
    from learner.policy import load_policy as load

    return load(run, checkpoint=checkpoint, device=device, rng_seed=rng_seed)


def train(
    config: "RunConfig",
    *,
    run_dir: Path | str,
    num_actors: int = 1,
    env_workers: int = 0,
    num_eval_actors: int = 0,
    resume: bool = False,
) -> "TrainResult":
    """Trains with actors of this machine; see `learner.api.train`."""
    from actors.envs import check_env_id

    check_env_id(config.env)  # before torch is loaded, which takes seconds
    from learner.api import train as run

    return run(
        config,
        run_dir=run_dir,
        num_actors=num_actors,
        env_workers=env_workers,
        num_eval_actors=num_eval_actors,
        resume=resume,
    )
