"""A run that is resumed although it has spent its budget: what it has reached, and who is told.

Called by the main thread, with the run's newest checkpoint.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import NoReturn

from learner.checkpoint import Checkpoint
from learner.config.run_config import RunConfig
from learner.reporting.counters import Counters
from learner.reporting.metrics import Metrics
from learner.service import Service, ServingConfig
from seed.errors import RunCompleteError
from seed.security import Security


def is_complete(checkpoint: Checkpoint, config: RunConfig) -> bool:
    """Whether the run has taken all the env steps that the config allows."""
    return checkpoint.state["env_steps"] >= config.learner.total_env_steps


def report_of(checkpoint: Checkpoint) -> dict[str, float]:
    """Returns the totals in a checkpoint: metrics by name."""
    counters = Counters()
    counters.load_state_dict(checkpoint.state["counters"])
    return counters.report() | {"wall_s": checkpoint.state["wall_s"]}


@contextlib.contextmanager
def telling_actors(
    config: RunConfig, name: str, addresses: Sequence[str], security: Security
) -> Iterator[None]:
    """Tells actors that come inside the context that the run is complete.

    They may have been away when it ended.

    Raises:
      ConfigError: an address that cannot be bound.
    """

    def refuse(*_: object) -> NoReturn:
        raise RunCompleteError(f"{name} is complete")

    service = Service(
        ServingConfig.of_run(config, security),
        name=name,
        make_task=refuse,
        build=refuse,
        on_failure=lambda error: None,
        metrics=Metrics(),
    )
    try:
        service.start(addresses)
        service.complete()
        yield
    finally:
        service.close()
