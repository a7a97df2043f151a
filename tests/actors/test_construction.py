"""actors/construction.py makes environments, and says in the user's terms why it cannot."""

import sys
import traceback
import types
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import actors.envs  # noqa: F401 - registers the games of ALE
from actors.construction import find_registered, make_env, make_vectors
from seed.env_config import EnvConfig
from seed.errors import ConfigError, EnvironmentFailedError
from tests.actors.odd_envs import Fragile

_CANNOT = r"env_id: expected an environment that can be made here, got odd/Made-v0 \("


def _register(env_id: str, **entry: Any) -> None:
    gymnasium.register(env_id, **entry)


def _make(entry_point: Any, **kwargs: Any) -> gymnasium.Env:
    _register("odd/Made-v0", entry_point=entry_point)
    return make_env(find_registered(EnvConfig(env_id="odd/Made-v0")), kwargs)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test registers ids of its own."""
    registry = dict(gymnasium.registry)
    for name in ("gymnasium.envs.registration.registry", "gymnasium.registry"):
        monkeypatch.setattr(name, registry)


def _adds_none(**_: Any) -> gymnasium.Env:
    return None + 1  # pyright: ignore[reportOperatorIssue]


def _needs_a_key(**kwargs: Any) -> gymnasium.Env:
    return kwargs["map"]


def _asserts(**_: Any) -> gymnasium.Env:
    raise AssertionError


def _calls_wrongly(**_: Any) -> gymnasium.Env:
    return Fragile(depth=3)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("entry_point", "error"),
    [
        (_adds_none, TypeError),
        (_needs_a_key, KeyError),
        (_asserts, AssertionError),
        (_calls_wrongly, TypeError),
    ],
)
def test_error_in_the_users_code_keeps_its_traceback(
    entry_point: Any, error: type[Exception]
) -> None:
    """The cause ends in the function that raised, and no flag is blamed."""
    with pytest.raises(EnvironmentFailedError, match="odd/Made-v0 cannot be made: ") as caught:
        _make(entry_point)
    cause = caught.value.__cause__
    assert cause is not None and type(cause) is error and "env_kwargs" not in str(caught.value)
    functions = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]
    assert functions[-1] == entry_point.__name__


def _passes_on(**kwargs: Any) -> gymnasium.Env:
    return Fragile(fails_at=0, **kwargs)


@pytest.mark.parametrize(
    ("entry_point", "kwargs", "reason"),
    [
        (Fragile, {"fails_at": 0, "colour": 1}, "unexpected keyword argument 'colour'"),
        (Fragile, {}, "missing 1 required positional argument: 'fails_at'"),
        (_passes_on, {"colour": 1}, "unexpected keyword argument 'colour'"),
        (_passes_on, {"fails_at": 1}, "multiple values for keyword argument 'fails_at'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    entry_point: Any, kwargs: dict[str, Any], reason: str
) -> None:
    """The flag is named where the arguments of the user do not fit the constructor."""
    wanted = f"env_kwargs: expected arguments of odd/Made-v0, got .*{reason}"
    with pytest.raises(ConfigError, match=wanted):
        _make(entry_point, **kwargs)


def _needs_box2d(**_: Any) -> gymnasium.Env:
    raise gymnasium.error.DependencyNotInstalled('Box2D is not installed, run `pip install "x"`')


def _needs_jax(**_: Any) -> gymnasium.Env:
    import no_such_jax  # pyright: ignore[reportMissingImports]

    return no_such_jax.Env()


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        (_needs_box2d, "Box2D is not installed, run"),
        (_needs_jax, "No module named 'no_such_jax'"),
        ("no_such_package.envs:Env", "No module named 'no_such_package'"),
        (dict, "The environment must inherit from the gymnasium.Env class"),
    ],
)
def test_environment_that_cannot_be_made_here_is_named(entry_point: Any, reason: str) -> None:
    """A package that is missing, or an object of another library, is no fault of env_kwargs."""
    with pytest.raises(ConfigError, match=_CANNOT + f".*{reason}"):
        _make(entry_point)


def test_environment_that_gymnasium_has_moved_is_named() -> None:
    """Gymnasium itself raises an ImportError whose text says where the environment is now."""
    with pytest.raises(ConfigError, match=r"env_id: .*HalfCheetah-v2 \(.*gymnasium-robotics"):
        make_env(find_registered(EnvConfig(env_id="HalfCheetah-v2")), {})


def test_errors_of_vectorised_environments_are_told_apart_as_well() -> None:
    """A class for all environments at once may have a bug, or other arguments."""

    def broken(num_envs: int) -> Any:
        return num_envs + None  # pyright: ignore[reportOperatorIssue]

    _register("odd/Vectors-v0", vector_entry_point=broken)
    registered = find_registered(EnvConfig(env_id="odd/Vectors-v0"))
    with pytest.raises(EnvironmentFailedError, match="odd/Vectors-v0 cannot be made: TypeError"):
        make_vectors(registered, 2, {})
    with pytest.raises(ConfigError, match=r"env_kwargs: .*odd/Vectors-v0.*'colour'"):
        make_vectors(registered, 2, {"colour": 1})


@pytest.mark.parametrize(
    ("env_id", "flags"),
    [
        ("PongNoFrameskip-v4", "--repeat-action-probability 0.0 --no-full-action-space"),
        ("BreakoutNoFrameskip-v4", "--repeat-action-probability 0.0 --no-full-action-space"),
        ("Pong-v4", "--repeat-action-probability 0.0 --no-full-action-space"),
        ("Pong-v0", "--repeat-action-probability 0.25 --no-full-action-space"),
        ("ale_py:MsPacmanNoFrameskip-v0", "--repeat-action-probability 0.25"),
        ("VideoPinballNoFrameskip-v4", "--repeat-action-probability 0.0"),
    ],
)
def test_game_of_ale_by_an_old_id_is_refused(env_id: str, flags: str) -> None:
    """It would train on raw frames; the error names the id and the flags of the same game."""
    name = env_id.rpartition(":")[2]
    game = name.removesuffix("-v0").removesuffix("-v4").removesuffix("NoFrameskip")
    wanted = "which has screens of 84 x 84 and a frame skip of 4"
    with pytest.raises(ConfigError, match=rf"^env_id: expected ALE/{game}-v5, {wanted}.*{flags}"):
        find_registered(EnvConfig(env_id=env_id))
    assert find_registered(EnvConfig(env_id=f"ALE/{game}-v5")).id == f"ALE/{game}-v5"


@pytest.mark.parametrize(
    "env_id",
    ["PongDeterministic-v4", "ALE/Pong-ram-v5", "Pong-ram-v4", "Pong-ramNoFrameskip-v4", "Pong-v5"],
)
def test_id_that_ale_no_longer_has_is_refused_with_the_one_it_has(env_id: str) -> None:
    """Everybody's old configs use these ids; ale-py registers none of them now."""
    with pytest.raises(ConfigError, match=r"the game of ALE is ALE/Pong-v5"):
        find_registered(EnvConfig(env_id=env_id))


def test_module_before_a_game_of_ale_changes_nothing() -> None:
    """The form module:id, which other packages need, is right for ALE, too."""
    config = EnvConfig(env_id="ale_py:ALE/Pong-v5")
    assert config.is_atari and config.frames_per_step == 4
    assert find_registered(config).kwargs["game"] == "pong"


def test_other_environment_in_the_namespace_of_ale_is_refused() -> None:
    """The native emulator would have no game for it."""
    _register("ALE/Mine-v0", entry_point=Fragile)
    with pytest.raises(ConfigError, match="env_id: expected a game of ale_py after ALE/"):
        find_registered(EnvConfig(env_id="ALE/Mine-v0"))


def test_environment_of_the_users_own_may_play_raw_frames() -> None:
    """An entry point of their own is how people ask for what `ALE/*` does not offer."""
    _register("odd/RawPong-v0", entry_point=lambda: gymnasium.make("ALE/Pong-v5"))
    registered = find_registered(EnvConfig(env_id="odd/RawPong-v0"))
    env = make_env(registered, {})
    assert env.observation_space.shape == (210, 160, 3)
    env.close()


def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Writes a module that can be imported; returns its name."""
    name = "module_of_a_user"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("from math import no_such_name", "ImportError"),
        ("from gymnasium.spaces import Box; Box(1, 0, (2,))", "low values must be less"),
    ],
)
def test_module_that_raises_keeps_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    """The error is in the user's module, so it is shown as Python shows it."""
    name = _module(tmp_path, monkeypatch, text)
    wanted = f"{name} cannot be imported: .*{reason}"
    with pytest.raises(EnvironmentFailedError, match=wanted) as caught:
        find_registered(EnvConfig(env_id=f"{name}:Env-v0"))
    assert caught.value.__cause__ is not None


def test_module_that_needs_a_missing_package_is_named_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's module is there; what it imports is not."""
    name = _module(tmp_path, monkeypatch, "import no_such_gym")
    wanted = f"{name} imports a package that is missing: No module named 'no_such_gym'"
    with pytest.raises(ConfigError, match=wanted):
        find_registered(EnvConfig(env_id=f"{name}:Env-v0"))


def test_id_of_the_old_gym_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that nobody has ported register in gym, where gymnasium does not look."""

    def spec(name: str) -> str:
        if name != "Battleship-v0":
            raise KeyError(name)
        return name

    monkeypatch.setitem(sys.modules, "gym", types.SimpleNamespace(spec=spec))
    wanted = "Battleship.*the old package gym has it: register it with gymnasium, its successor"
    with pytest.raises(ConfigError, match=wanted):
        find_registered(EnvConfig(env_id="math:Battleship-v0"))
    with pytest.raises(ConfigError) as caught:
        find_registered(EnvConfig(env_id="math:Submarine-v0"))
    assert "gym has it" not in str(caught.value)


def test_ids_that_a_module_does_have_are_named() -> None:
    """A wrong name or version is the usual mistake."""
    for number in range(7):
        gymnasium.register(f"odd/Sum{number}-v2", entry_point="math:fsum")
    wanted = r"'math:Sum-v0' \(.*; math has odd/Sum0-v2, .*, odd/Sum4-v2 and 2 more\)"
    with pytest.raises(ConfigError, match=wanted):
        find_registered(EnvConfig(env_id="math:Sum-v0"))
