"""Whether a command that resumes a run means the run that is in its directory.

Called where flags are parsed, and by `seed.train`; before anything is written. Torch-free.
"""

from learner.config.config_file import load_config, load_provenance
from learner.config.run_config import RunConfig
from learner.config.run_dir import RunDir
from seed.errors import ConfigError, expected

# What runs of `seed.train` have in the place of a preset's name.
NO_PRESET = "seed.train"

_WAY_OUT = "another --run-dir starts a new run"


class RunToResume:
    """The run of a directory, as its config.yaml describes it."""

    def __init__(self, run_dir: RunDir) -> None:
        """Reads the config. Raises ConfigError if it is broken."""
        self._run_dir = run_dir
        self._config = load_config(run_dir.config)
        self.preset: str | None = load_provenance(run_dir.config).get("name")
        """The preset that the run started from, or `NO_PRESET`; None if the file does not tell."""

    def config_for(self, preset: str, algorithm: str | None) -> RunConfig:
        """Returns the run's config for a command that names a preset, and perhaps an agent.

        Raises:
          ConfigError: the run is of another preset or agent.
        """
        if self.preset not in (None, NO_PRESET):
            self._require("preset", self.preset, preset)
        if algorithm is not None:
            self._require("agent", self._config.agent.algorithm, algorithm)
        return self._config

    def check(self, config: RunConfig) -> None:
        """Refuses a config that is not for this run's agent and environment."""
        self._require("agent", self._config.agent.algorithm, config.agent.algorithm)
        self._require("env_id", self._config.env.env_id, config.env.env_id, "environment")

    def _require(self, field: str, own: str | None, given: str, called: str | None = None) -> None:
        if own != given:
            wanted = f"{own!r}, the {called or field} of the run in {self._run_dir.path}"
            raise ConfigError(f"{expected(field, wanted, repr(given))}; {_WAY_OUT}")


def run_to_resume(run_dir: RunDir) -> RunToResume | None:
    """Returns the run of a directory; None if no run has got further there than its start.

    Raises:
      ConfigError: its config.yaml is broken.
    """
    is_there = run_dir.has_results and run_dir.config.exists()
    return RunToResume(run_dir) if is_there else None


def not_new(run_dir: RunDir) -> ConfigError:
    """Returns the error of a directory that holds a run which is not to be resumed."""
    return ConfigError(expected("run_dir", "a new directory, or --resume", run_dir.path))
