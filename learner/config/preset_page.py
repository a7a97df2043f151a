"""The help pages of the commands that take a preset: of the command, and of one preset."""

import shlex
from collections.abc import Sequence

from learner.config.earlier_runs import preset_of_newest_run
from learner.config.plugins import installed
from learner.config.presets import KIND, PRESETS
from seed.errors import ConfigError, expected
from seed.help_page import Page
from seed.suggestions import full_name

_MOST_USED = (
    "total_env_steps",
    "env_id",
    "num_actors",
    "listen",
    "envs_per_group",
    "learning_rate",
    "batch_size",
    "rng_seed",
    "device",
    "run_dir",
    "resume",
)

# The other flags of the commands, in the order in which a run meets them.
_SECTIONS = {
    "who may connect": (
        "listen",
        "tls_cert",
        "tls_key",
        "tls_ca",
        "token_file",
        "insecure",
    ),
    "reports": ("json", "log_format", "metrics_port", "metrics_host"),
}

_EXAMPLE_FLAGS = {
    "train": ("--num-actors 2 --run-dir runs/mine", "--run-dir runs/mine --resume"),
    "learner": ("--listen 127.0.0.1:50051", "--run-dir runs/mine --resume"),
}


def page_of_preset(command: str, name: str, about: str) -> Page:
    """Returns the page of `seed <command> <name>`."""
    examples = [f"seed {command} {name} {flags}" for flags in _EXAMPLE_FLAGS[command]]
    # The local actors have a socket of their own.
    most_used = [field for field in _MOST_USED if (command, field) != ("train", "listen")]
    return Page(
        usage=f"seed {command} {name} [flags]",
        about=about,
        examples=examples,
        most_used=most_used,
        sections=_SECTIONS,
    )


def check_preset_comes_first(command: str, argv: Sequence[str]) -> None:
    """Raises ConfigError with a command that works, if `argv` begins with a flag."""
    if not argv[0].startswith("-"):
        return
    names = [*PRESETS, *installed(KIND)]
    named = next((word for word in argv if full_name(word, names)), None)
    others = [word for word in argv if word != named]
    preset = named or preset_of_newest_run() or "catch-vtrace"
    right = shlex.join(["seed", command, preset, *others])
    raise ConfigError(
        f"{expected('PRESET', 'a preset before the flags', argv[0])}; such as: {right}"
    )


def list_of_presets(command: str) -> str:
    """Returns the page of `seed <command>`: the presets, and what to type next."""
    lines = [f"usage: seed {command} PRESET [flags]", "", "presets:"]
    lines += [f"  {name:18} {preset.help}" for name, preset in PRESETS.items()]
    for name, entry_point in installed(KIND).items():
        package = entry_point.dist.name if entry_point.dist else entry_point.module
        lines.append(f"  {name:18} Of the installed package {package}.")
    lines += ["  module:Name        A preset in a module of your own, e.g. in the current folder."]
    lines += ["", f"The beginning of a name is enough: seed {command} catch"]
    lines += [f"`seed {command} PRESET --help` lists the flags and the preset's values."]
    return "\n".join(lines)
