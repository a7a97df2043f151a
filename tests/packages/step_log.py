"""An observer of steps, as a package that is not this project's: it writes what is chosen.

seed train cartpole-vtrace --observers tests.packages.step_log:StepLog
"""

import json
from pathlib import Path

from learner.acting.observers import ObservedStep


class StepLog:
    """Writes one line a batch to steps.jsonl in the run's directory."""

    def __init__(self, run_dir: Path) -> None:
        self._file = (run_dir / "steps.jsonl").open("w", encoding="utf-8")

    def observe(self, step: ObservedStep) -> None:
        """Writes slots, actions and values."""
        assert step.values is not None, "V-trace has values"
        line = {
            "slots": step.slots.tolist(),
            "actions": step.steps.actions[0].tolist(),
            "values": step.values.tolist(),
        }
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Writes a last line, "closed", and closes the file."""
        self._file.write('"closed"\n')
        self._file.close()
