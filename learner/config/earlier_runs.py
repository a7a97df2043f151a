"""The runs that the current folder holds, for messages that say which ones there are."""

import re
from pathlib import Path

from learner.config.run_dir import RunDir
from seed.errors import ConfigError, expected
from seed.suggestions import did_you_mean, near_names

RUNS = Path("runs")

# Of a second run in one second a number follows.
_DEFAULT_NAME = re.compile(r"(?P<preset>.+)-\d{8}-\d{6}(-\d+)?")

# A message stays readable.
_MAX_NAMED = 3


def earlier_runs() -> list[Path]:
    """Returns the directories of runs below runs/ that have a checkpoint, the newest first."""
    found = [path.parent for path in RUNS.glob("*/checkpoints")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def check_is_run(field: str, path: Path) -> None:
    """Raises ConfigError, naming runs, if nothing is at `path`, or a folder of several runs.

    A checkpoint or a run that cannot be read is left to those who read it.
    """
    if not path.exists():
        raise no_run(field, f"{path}, which does not exist", path.name)
    if _holds_runs(path):
        raise no_run(field, f"{path}, a folder of runs")


def no_run(field: str, got: str, name: str = "") -> ConfigError:
    """Returns the error that names the runs there are: those with a name like `name`, or all."""
    runs = earlier_runs()
    nearest = near_names(name, [run.name for run in runs])
    named = [run for run in runs if run.name in nearest] or runs
    hint = did_you_mean(str(run) for run in named[:_MAX_NAMED])
    return ConfigError(f"{expected(field, 'the directory of a run or of a checkpoint', got)}{hint}")


def preset_of_newest_run() -> str | None:
    """Returns the preset of the newest run with a default name; None if there is none."""
    for run in earlier_runs():
        if match := _DEFAULT_NAME.fullmatch(run.name):
            return match["preset"]
    return None


def _holds_runs(path: Path) -> bool:
    is_run = RunDir(path).config.exists() or RunDir(path).checkpoints.exists()
    return path.is_dir() and not is_run and any(path.glob("*/checkpoints"))
