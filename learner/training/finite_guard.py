"""Keeps an update that is not finite away from the weights.

The trainer calls it between the gradients and the optimiser's step. One NaN in a gradient
would reach every weight, and then every action.
"""

import json
import logging
import math
from pathlib import Path

import safetensors.torch
from torch import Tensor

from learner.records import Batch, flatten
from learner.reporting.metrics import Metrics
from seed.errors import NonFiniteLossError, expected

_LOG = logging.getLogger(__name__)

# Batches that a run writes to disk for inspection. If all later updates fail, the first
# batches tell most.
MAX_DUMPS = 5


class FiniteGuard:
    """Refuses updates whose loss or gradient is not finite; raises after many in a row.

    The first few refused batches are written to `directory`, which is made for them.
    """

    def __init__(self, directory: Path, metrics: Metrics, *, max_in_a_row: int) -> None:
        self._directory = directory
        self._metrics = metrics
        self._max_in_a_row = max_in_a_row
        self._in_a_row = 0

    def admits(self, values: dict[str, float], batch: Batch, learner_step: int) -> bool:
        """Tells whether the update may be made.

        Args:
          values: losses and gradient norm of the update, by name.
          batch: the batch of the update.
          learner_step: updates made before it.

        Raises:
          NonFiniteLossError: `max_in_a_row` updates in a row were not finite.
        """
        bad = {name: value for name, value in values.items() if not math.isfinite(value)}
        if not bad:
            self._in_a_row = 0
            return True
        self._in_a_row += 1
        self._metrics.sum("loss/non_finite", 1)
        where = self._dump(batch, values, learner_step)
        what = ", ".join(f"{name} {value}" for name, value in bad.items())
        _LOG.error("left out update %d, which is not finite (%s); %s", learner_step, what, where)
        if self._in_a_row >= self._max_in_a_row:
            got = f"{what} in {self._in_a_row} updates in a row; batches are in {self._directory}"
            raise NonFiniteLossError(expected("loss", "finite values", got))
        return False

    def _dump(self, batch: Batch, values: dict[str, float], learner_step: int) -> str:
        """Writes the batch to disk, unless enough are there; returns a clause that says where."""
        path = self._directory / f"update-{learner_step}.safetensors"
        if len(list(self._directory.glob("update-*.safetensors"))) >= MAX_DUMPS:
            return f"{MAX_DUMPS} earlier batches are in {self._directory}"
        # As text: JSON has no NaN.
        metadata = {name: str(value) for name, value in values.items()}
        versions = batch.unrolls.steps.policy_versions.unique().tolist()
        metadata["policy_versions"] = json.dumps(versions)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            safetensors.torch.save_file(named_tensors(batch), path, metadata)
        except (OSError, safetensors.SafetensorError) as error:
            return f"its batch could not be written: {error}"
        return f"its batch is in {path}"


def named_tensors(batch: Batch) -> dict[str, Tensor]:
    """Returns copies of all inputs of the loss, by path: "steps/rows/rewards"."""
    tensors = flatten(batch.unrolls)
    if batch.importance_weights is not None:
        tensors["importance_weights"] = batch.importance_weights
    return {name: x.detach().to("cpu", copy=True).contiguous() for name, x in tensors.items()}
