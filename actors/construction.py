"""Ids -> registered environments -> objects, with every error in the user's own terms.

Used by `envs.py`, in the actor and in each worker process. An error in the user's code keeps its
traceback; any other one is a single line that names the flag.
"""

import contextlib
import importlib
import re
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as RegisteredEnv
from gymnasium.vector import VectorEnv

from seed.env_config import ATARI_PREFIX, EnvConfig
from seed.errors import ConfigError, EnvironmentFailedError, SeedError, expected

_GYMNASIUM = str(Path(gymnasium.__file__).parent)

# What Python says if the arguments of a call do not fit the function.
_ARGUMENTS_ERROR = re.compile(
    r"unexpected keyword argument|missing \d+ required|multiple values for|takes .*positional"
)

_MOST_IDS_SHOWN = 5


def find_registered(config: EnvConfig) -> RegisteredEnv:
    """Returns the entry of an id: "Env-v0", or "module:Env-v0" to import a module first.

    Raises:
      ConfigError: no such module or id, or a game of ALE by an id that is not "ALE/...".
      EnvironmentFailedError: the module raises when it is imported.
    """
    module, _, name = config.env_id.rpartition(":")
    if module:
        _import(module, config.env_id)
    try:
        registered = gymnasium.spec(name)
    except gymnasium.error.Error as error:
        raise _unknown_id(config.env_id, f"{error}{_hint(module, name)}") from error
    _check_atari_id(config, registered)
    return registered


def make_env(registered: RegisteredEnv, kwargs: dict[str, Any]) -> gymnasium.Env:
    """Returns one environment.

    Raises:
      ConfigError: arguments that it does not take, or a package that is not installed.
      EnvironmentFailedError: its own code raised.
    """
    with _errors_explained(registered, kwargs):
        # The checker writes many warnings to stderr. The actor checks every answer itself.
        return gymnasium.make(registered, disable_env_checker=True, **kwargs)


def make_vectors(registered: RegisteredEnv, num_envs: int, kwargs: dict[str, Any]) -> VectorEnv:
    """Returns `num_envs` environments in one object; raises as `make_env`."""
    with _errors_explained(registered, kwargs):
        return gymnasium.make_vec(registered, num_envs=num_envs, **kwargs)


def _import(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module == missing or module.startswith(f"{missing}."):
            raise _unknown_id(env_id, str(error)) from error
        raise _unknown_id(env_id, f"{module} imports a package that is missing: {error}") from error
    except Exception as error:
        raise EnvironmentFailedError(f"{module} cannot be imported: {error!r}") from error


def _unknown_id(env_id: str, reason: str) -> ConfigError:
    wanted = "an environment registered on the actor's machine"
    return ConfigError(f"{expected('env_id', wanted, repr(env_id))} ({reason})")


def _hint(module: str, name: str) -> str:
    """Returns what may help if gymnasium does not know an id."""
    old_gym = sys.modules.get("gym")
    with contextlib.suppress(Exception):  # its versions differ, and raise errors of their own
        if old_gym is not None and old_gym.spec(name):
            return "; the old package gym has it: register it with gymnasium, its successor"
    game = re.match(r"(?:ALE/)?([A-Za-z]+?)(?:-ram)?(?:Deterministic|NoFrameskip)?-v\d+$", name)
    if game and f"{ATARI_PREFIX}{game[1]}-v5" in gymnasium.registry:
        return f"; the game of ALE is {ATARI_PREFIX}{game[1]}-v5"
    package = module.partition(".")[0]
    ids = [key for key, entry in gymnasium.registry.items() if _package_of(entry) == package]
    if not module or not ids:
        return ""
    more = f" and {len(ids) - _MOST_IDS_SHOWN} more" if len(ids) > _MOST_IDS_SHOWN else ""
    return f"; {package} has {', '.join(sorted(ids)[:_MOST_IDS_SHOWN])}{more}"


def _package_of(registered: RegisteredEnv) -> str:
    """Returns the package whose code an entry runs."""
    entry = registered.entry_point or registered.vector_entry_point
    module = entry if isinstance(entry, str) else getattr(entry, "__module__", "")
    return re.split(r"[.:]", module)[0]


def _check_atari_id(config: EnvConfig, registered: RegisteredEnv) -> None:
    """Refuses ids of ALE that would give raw frames, and others that claim to be of ALE."""
    is_of_ale = _package_of(registered) == "ale_py"
    if is_of_ale == config.is_atari:
        return
    if config.is_atari:
        raise ConfigError(expected("env_id", "a game of ale_py after ALE/", config.env_id))
    game = "".join(word.title() for word in registered.kwargs["game"].split("_"))
    flags = f"--repeat-action-probability {registered.kwargs['repeat_action_probability']}"
    if not registered.kwargs.get("full_action_space"):
        flags += " --no-full-action-space"
    wanted = (
        f"{ATARI_PREFIX}{game}-v5, which has screens of 84 x 84 and a frame skip of 4 "
        f"(add {flags} for the same game)"
    )
    raise ConfigError(expected("env_id", wanted, f"{config.env_id}, which has raw frames"))


@contextlib.contextmanager
def _errors_explained(registered: RegisteredEnv, kwargs: dict[str, Any]) -> Iterator[None]:
    """Raises what making an environment raises as errors of this system."""
    try:
        yield
    except SeedError:
        raise
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise _cannot_be_made(registered, error) from error
    except gymnasium.error.Error as error:
        raise _cannot_be_made(registered, error, kwargs) from error
    except Exception as error:
        # Gymnasium raises a TypeError again, with its own words added.
        cause = error.__cause__ if isinstance(error.__cause__, TypeError) else error
        if _is_about_arguments(cause, kwargs):
            raise _cannot_be_made(registered, cause, kwargs, about_kwargs=True) from error
        is_of_gymnasium = _innermost_file(cause).startswith(_GYMNASIUM)
        if is_of_gymnasium and isinstance(cause, (TypeError, ImportError)):
            raise _cannot_be_made(registered, cause) from error
        raise EnvironmentFailedError(f"{registered.id} cannot be made: {cause!r}") from cause


def _cannot_be_made(
    registered: RegisteredEnv,
    error: Exception,
    kwargs: dict[str, Any] | None = None,
    *,
    about_kwargs: bool = False,
) -> ConfigError:
    field, wanted, got = "env_id", "an environment that can be made here", registered.id
    if kwargs or about_kwargs:
        field, wanted, got = "env_kwargs", f"arguments of {registered.id}", str(kwargs)
    return ConfigError(f"{expected(field, wanted, got)} ({error})")


def _is_about_arguments(error: Exception, kwargs: dict[str, Any]) -> bool:
    """Whether a constructor was called with arguments that do not fit it.

    The same words about a call within the user's code are about that code, unless they name an
    argument that the user gave: a function may pass its arguments on.
    """
    if not isinstance(error, TypeError) or not _ARGUMENTS_ERROR.search(str(error)):
        return False
    named = re.findall(r"'(\w+)'", str(error))
    return _innermost_file(error).startswith(_GYMNASIUM) or bool(kwargs.keys() & named)


def _innermost_file(error: Exception) -> str:
    """Returns the path of the file whose code raised."""
    return traceback.extract_tb(error.__traceback__)[-1].filename
