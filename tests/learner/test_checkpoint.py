"""Checkpoints read back as saved, and no kill and no damage loses a whole one."""

import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from learner.checkpoint import load_checkpoint, load_replay, save_checkpoint, was_ever_saved
from learner.checkpoints.files import fingerprint
from seed.errors import CheckpointError


class KilledError(BaseException):
    """Stands for kill -9, so no `except OSError` and no `except Exception` catches it."""


def make_weights(value: float) -> dict[str, Tensor]:
    """Returns two tensors that share storage, as the parameters of a flat buffer do."""
    flat = torch.full((6,), value)
    return {"torso.weight": flat[:4].view(2, 2), "torso.bias": flat[4:]}


def save(directory: Path, step: int, *, keep: int = 3, value: float | None = None) -> Path:
    """Saves a checkpoint whose weights and state tell its step, or `value` where given."""
    value = float(step) if value is None else value
    state = {"env_steps": step * 10, "value": value}
    return save_checkpoint(directory, step, make_weights(value), state, keep=keep)


def value_of(path: Path) -> float:
    """Returns the value of `save` for the checkpoint at `path`."""
    return load_checkpoint(path).weights["torso.bias"][0].item()


def steps_in(directory: Path) -> list[int]:
    """Returns the steps of the checkpoints that exist, sorted."""
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def die_at(monkeypatch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Kills the process at call `number` (from 1) of os.`call`, before its effect."""
    real: Callable[..., None] = getattr(os, call)
    calls = 0

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KilledError
        real(*args, **kwargs)

    monkeypatch.setattr(os, call, counted)


def test_weights_and_state_read_back_as_saved(tmp_path: Path) -> None:
    """Every kind of value that resuming needs survives, bit for bit."""
    state = {
        "env_steps": 12_345_678_901,
        "theta": 0.1,
        "name": "x",
        "none": None,
        "flag": True,
        "rng": torch.get_rng_state(),
        "nested": {"list": [1, (2, 3.5)], 4: torch.arange(3, dtype=torch.int16)},
    }
    path = save_checkpoint(tmp_path / "checkpoints", 7, make_weights(1.5), state, keep=1)
    loaded = load_checkpoint(path)
    assert loaded.learner_step == 7
    assert loaded.path == path
    assert loaded.weights.keys() == make_weights(0).keys()
    for name, tensor in make_weights(1.5).items():
        assert torch.equal(loaded.weights[name], tensor)
    assert torch.equal(loaded.state.pop("rng"), state.pop("rng"))
    assert torch.equal(loaded.state["nested"].pop(4), state["nested"].pop(4))
    assert loaded.state == state


def test_optimizer_goes_on_exactly_where_it_was_saved(tmp_path: Path) -> None:
    """One more update after loading equals one more update without a break."""

    def update(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model(torch.ones(3, 2)).square().sum().backward()
        optimizer.step()

    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Linear(2, 2)
        return model, torch.optim.Adam(model.parameters(), lr=0.1)

    model, optimizer = make()
    update(model, optimizer)
    state = {"optimizer": optimizer.state_dict()}
    path = save_checkpoint(tmp_path, 1, model.state_dict(), state, keep=1)
    update(model, optimizer)

    resumed_model, resumed_optimizer = make()
    loaded = load_checkpoint(path)
    resumed_model.load_state_dict(loaded.weights)
    resumed_optimizer.load_state_dict(loaded.state["optimizer"])
    update(resumed_model, resumed_optimizer)
    for wanted, got in zip(model.parameters(), resumed_model.parameters(), strict=True):
        assert torch.equal(wanted, got)


def test_weights_are_plain_safetensors_with_readable_meta(tmp_path: Path) -> None:
    """Another program can read a checkpoint without this one."""
    path = save(tmp_path, 3)
    header_size = int.from_bytes((path / "weights.safetensors").read_bytes()[:8], "little")
    assert header_size < 1000
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    assert (meta["format_version"], meta["learner_step"], meta["env_steps"]) == (1, 3, 30)


def test_latest_points_to_the_newest(tmp_path: Path) -> None:
    """The link is relative, so that a run can be moved."""
    save(tmp_path, 1)
    save(tmp_path, 2)
    assert os.readlink(tmp_path / "latest") == "2"
    assert load_checkpoint(tmp_path).learner_step == 2


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    """Nothing but `keep` checkpoints and the link stays."""
    for step in range(1, 6):
        save(tmp_path, step, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["4", "5", "latest"]


def test_a_new_branch_at_lower_steps_outlives_the_one_it_left(tmp_path: Path) -> None:
    """Newest means saved last, since a run may resume from an older checkpoint."""
    save(tmp_path, 200, keep=2)
    save(tmp_path, 300, keep=2)
    save(tmp_path, 110, keep=2)
    save(tmp_path, 120, keep=2)
    assert steps_in(tmp_path) == [110, 120]
    assert load_checkpoint(tmp_path).learner_step == 120


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    """The second one replaces the first, which leaves no file."""
    save(tmp_path, 1, value=0.25)
    save(tmp_path, 1, value=0.75)
    assert value_of(tmp_path) == 0.75
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "latest"]


# The calls that change what is visible, in their order, when step 2 is saved again
# with keep=1: 2 -> .replaced-2, .tmp-2 -> 2, the removal of .replaced-2, `latest`, and the pruning
# of 1.
@pytest.mark.parametrize(
    ("call", "number", "values"),
    [
        ("rename", 1, {0.25}),
        ("rename", 2, {0.25}),
        ("rename", 3, {0.75}),
        ("replace", 1, {0.75}),
        ("rename", 4, {0.75}),
    ],
)
def test_a_kill_between_any_two_renames_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, values: set[float]
) -> None:
    """What `load_checkpoint` finds is the old or the new one, and the next save cleans up."""
    save(tmp_path, 1)
    save(tmp_path, 2, value=0.25)
    with monkeypatch.context() as patch:
        die_at(patch, call, number)
        with pytest.raises(KilledError):
            save(tmp_path, 2, value=0.75, keep=1)
    assert value_of(tmp_path) in values
    save(tmp_path, 3, keep=2)
    assert steps_in(tmp_path) == [2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "latest"]


def test_a_kill_while_writing_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-written files are never under a checkpoint's name."""
    save(tmp_path, 1)
    for number in range(1, 5):
        with monkeypatch.context() as patch:
            die_at(patch, "fsync", number)
            with pytest.raises(KilledError):
                save(tmp_path, 2)
        assert steps_in(tmp_path) == [1]
        assert load_checkpoint(tmp_path).learner_step == 1
    save(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "latest"]


def test_a_kill_during_the_first_save_is_as_if_none_had_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor's `--resume` then starts afresh; after a whole checkpoint it does not."""
    directory = tmp_path / "checkpoints"
    assert not was_ever_saved(directory)
    for call, number in (("fsync", 1), ("rename", 1)):
        with monkeypatch.context() as patch:
            die_at(patch, call, number)
            with pytest.raises(KilledError):
                save(directory, 1)
        assert any(directory.iterdir()) and not was_ever_saved(directory)
    with monkeypatch.context() as patch:
        die_at(patch, "replace", 1)
        with pytest.raises(KilledError):
            save(directory, 1)
    assert was_ever_saved(directory)
    shutil.rmtree(directory / "1")
    (directory / "1").mkdir()
    assert was_ever_saved(directory), "lost, which is to be said"


def test_a_kill_before_the_link_moves_keeps_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`latest` still points to a whole checkpoint, and the newest one is found without it."""
    save(tmp_path, 1)
    die_at(monkeypatch, "replace", 1)
    with pytest.raises(KilledError):
        save(tmp_path, 2)
    assert os.readlink(tmp_path / "latest") == "1"
    assert value_of(tmp_path / "1") == 1
    assert load_checkpoint(tmp_path).learner_step == 2


def test_a_full_disk_is_an_error_that_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files written so far are removed, so that their room is free again."""
    save(tmp_path, 1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        save(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "latest"]
    assert load_checkpoint(tmp_path).learner_step == 1


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """A file stands where the directory must be."""
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(CheckpointError, match="expected room and permission"):
        save(tmp_path / "checkpoints", 1)


@pytest.mark.parametrize("broken", ["missing", "dangling", "torn"])
def test_newest_whole_one_is_taken_where_latest_is_broken(tmp_path: Path, broken: str) -> None:
    """A damaged link or checkpoint costs one checkpoint, not the run."""
    for step in (1, 2, 3):
        save(tmp_path, step)
    if broken == "missing":
        (tmp_path / "latest").unlink()
    elif broken == "dangling":
        shutil.rmtree(tmp_path / "3")
    else:
        (tmp_path / "3" / "state.pt").write_bytes(b"")
    wanted = 3 if broken == "missing" else 2
    assert load_checkpoint(tmp_path).learner_step == wanted


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt", "meta.json"])
def test_a_truncated_file_is_named(tmp_path: Path, name: str) -> None:
    """Every length below the full one is noticed."""
    path = save(tmp_path, 1)
    whole = (path / name).read_bytes()
    for size in {0, 1, len(whole) // 2, len(whole) - 2}:
        (path / name).write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=name):
            load_checkpoint(path)


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt"])
def test_one_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
    """The hash finds damage that keeps the size."""
    path = save(tmp_path, 1)
    data = bytearray((path / name).read_bytes())
    data[len(data) // 2] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=f"{name}.*damaged"):
        load_checkpoint(path)


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt", "meta.json"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """The message names the file."""
    path = save(tmp_path, 1)
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}: expected a readable file"):
        load_checkpoint(path)


def test_no_checkpoint_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    """This holds for an empty directory and for none."""
    with pytest.raises(CheckpointError, match="at least one whole checkpoint, got none"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="nowhere: expected a directory"):
        load_checkpoint(tmp_path / "nowhere")


@pytest.mark.parametrize("meta", ["{", "[]", '{"format_version": 2}', '{"format_version": 1}'])
def test_a_foreign_meta_file_is_refused(tmp_path: Path, meta: str) -> None:
    """A file of another program or version is not read."""
    path = save(tmp_path, 1)
    (path / "meta.json").write_text(meta, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"meta\.json"):
        load_checkpoint(path)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        """Makes `target` when it is unpickled."""
        self._target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
        """Says how to unpickle: by calling `Path.touch`."""
        return Path.touch, (self._target,)


@pytest.mark.parametrize("writer", ["torch", "pickle"])
def test_code_in_a_checkpoint_is_refused_and_not_run(tmp_path: Path, writer: str) -> None:
    """It is refused although sizes and hashes agree, as an attacker would make them agree."""
    path = save(tmp_path / "checkpoints", 1)
    exploded = tmp_path / "exploded"
    with (path / "state.pt").open("wb") as file:
        if writer == "torch":
            torch.save({"x": Bomb(exploded)}, file)
        else:
            pickle.dump({"x": Bomb(exploded)}, file, protocol=2)
    meta = json.loads((path / "meta.json").read_text(encoding="utf-8"))
    data = (path / "state.pt").read_bytes()
    meta["files"]["state.pt"] = fingerprint(data)
    (path / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"state\.pt: expected tensors, numbers"):
        load_checkpoint(path)
    assert not exploded.exists()


def test_state_that_could_not_be_loaded_is_refused_when_saving(tmp_path: Path) -> None:
    """A NumPy number is a usual mistake, and the first save fails rather than the resume."""
    state = {"nested": [torch.ones(1).numpy()[0]]}
    with pytest.raises(AssertionError, match=r"state\['nested'\]\[0\]"):
        save_checkpoint(tmp_path, 1, make_weights(0), state, keep=1)
    assert list(tmp_path.iterdir()) == []


def save_with_replay(directory: Path, step: int) -> Path:
    """Saves a checkpoint whose replay holds its step."""
    replay = {"rewards": torch.full((4,), float(step)), "frames": torch.arange(6).to(torch.uint8)}
    return save_checkpoint(directory, step, make_weights(0), {}, keep=3, replay=replay)


def test_replay_reads_back_as_saved(tmp_path: Path) -> None:
    """It is read only when asked for, and the weights need no replay."""
    path = save_with_replay(tmp_path, 5)
    replay = load_replay(path)
    assert replay is not None
    assert replay["rewards"].tolist() == [5.0] * 4
    assert replay["frames"].tolist() == [0, 1, 2, 3, 4, 5]
    assert load_checkpoint(path).learner_step == 5


def test_only_the_newest_checkpoint_keeps_its_replay(tmp_path: Path) -> None:
    """A replay may be as large as all other files of the run."""
    older, newest = save_with_replay(tmp_path, 1), save_with_replay(tmp_path, 2)
    assert load_replay(older) is None
    assert load_checkpoint(older).learner_step == 1
    assert load_replay(newest) is not None
    without = save(tmp_path, 3)
    assert load_replay(newest) is None
    assert load_replay(without) is None


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"x"])
def test_damaged_replay_is_named(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """The weights of the same checkpoint can still be read."""
    path = save_with_replay(tmp_path, 1)
    file = path / "replay.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(CheckpointError, match="replay.safetensors: expected .* got .*damaged"):
        load_replay(path)
    assert load_checkpoint(path).learner_step == 1


def test_a_replay_that_cannot_be_written_is_an_error_that_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors reports a full disk with an error of its own."""
    before = save(tmp_path, 1)

    def fail(*_: object) -> None:
        raise safetensors.SafetensorError("no space left")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)
    with pytest.raises(CheckpointError, match="no space left"):
        save_with_replay(tmp_path, 2)
    assert steps_in(tmp_path) == [1]
    assert load_checkpoint(tmp_path).path == before
