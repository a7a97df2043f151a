"""Checkpoints that are damaged, or that an attacker made, are refused and never run."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learner.checkpoint import Checkpoint, load_checkpoint, load_replay, save_checkpoint
from learner.checkpoints.files import fingerprint
from seed.errors import CheckpointError
from tests.fuzz.profiles import QUICK

# All examples share the directory: each writes the files that it reads.
FILES = settings(
    QUICK, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

WEIGHTS = {"w": torch.arange(6.0).reshape(2, 3)}
STATE = {"env_steps": 12, "optimizer": {"step": torch.tensor(3.0)}, "names": ["a", None]}
NAMES = ["meta.json", "weights.safetensors", "state.pt", "replay.safetensors"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A whole checkpoint with a replay."""
    return save_checkpoint(tmp_path, 7, WEIGHTS, STATE, keep=1, replay={"rows": torch.ones(3)})


def load(path: Path) -> Checkpoint | None:
    """Returns the checkpoint, or None where it was refused as it should be."""
    try:
        loaded = load_checkpoint(path)
        load_replay(path)
    except CheckpointError as error:
        assert str(path) in str(error)
        return None
    return loaded


def assert_as_saved(loaded: Checkpoint) -> None:
    """Asserts that nothing that matters has changed."""
    assert torch.equal(loaded.weights["w"], WEIGHTS["w"])
    assert loaded.state["env_steps"] == 12
    assert torch.equal(loaded.state["optimizer"]["step"], torch.tensor(3.0))


def sign(path: Path, name: str, data: bytes) -> None:
    """Replaces a file by `data`, and its hash by that of `data`."""
    (path / name).write_bytes(data)
    meta = json.loads((path / "meta.json").read_text())
    meta["files"][name] = fingerprint(data)
    (path / "meta.json").write_text(json.dumps(meta))


@FILES
@given(
    name=st.sampled_from(NAMES),
    where=st.floats(0, 1, exclude_max=True),
    byte=st.integers(0, 255),
    cuts=st.booleans(),
)
def test_damaged_file_is_as_saved_or_refused(
    checkpoint: Path, name: str, where: float, byte: int, cuts: bool
) -> None:
    """A byte is changed, or the end is cut off; only a changed date may pass unnoticed."""
    file = checkpoint / name
    whole = file.read_bytes()
    position = int(where * len(whole))
    tail = b"" if cuts else bytes([byte]) + whole[position + 1 :]
    file.write_bytes(whole[:position] + tail)
    try:
        loaded = load(checkpoint)
        if loaded is not None:
            assert_as_saved(loaded)
    finally:
        file.write_bytes(whole)


@FILES
@given(name=st.sampled_from(NAMES[1:]), data=st.binary(max_size=200))
def test_random_file_with_the_right_hash_is_refused(
    checkpoint: Path, name: str, data: bytes
) -> None:
    """An attacker who writes a file can write its hash too."""
    sign(checkpoint, name, data)
    assert load(checkpoint) is None


@FILES
@given(
    st.dictionaries(
        st.sampled_from(["format_version", "learner_step", "saved_at_s", "files"]),
        st.recursive(
            st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=5)),
            lambda leaf: st.dictionaries(st.sampled_from(NAMES), leaf, max_size=3),
            max_leaves=4,
        ),
    )
)
def test_strange_description_is_as_saved_or_refused(
    checkpoint: Path, changes: dict[str, Any]
) -> None:
    """The description is valid JSON with other content."""
    file = checkpoint / "meta.json"
    whole = file.read_text()
    file.write_text(json.dumps(json.loads(whole) | changes))
    try:
        loaded = load(checkpoint)
        if loaded is not None:
            assert_as_saved(loaded)
    finally:
        file.write_text(whole)


class Bomb:
    """Makes a directory when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("name", NAMES[1:])
def test_code_in_a_checkpoint_is_never_run(checkpoint: Path, tmp_path: Path, name: str) -> None:
    """It runs neither in a bare pickle nor in a file of torch.save."""
    target = tmp_path / "made-by-a-stranger"
    zipped = io.BytesIO()
    torch.save({"bomb": Bomb(target)}, zipped)
    for data in (pickle.dumps(Bomb(target)), zipped.getvalue()):
        sign(checkpoint, name, data)
        assert load(checkpoint) is None
    assert not target.exists()


@pytest.mark.parametrize("text", ["[" * 50_000, "1" * 5_000, "[]", "null", '"x"', ""])
def test_description_that_is_not_an_object_is_refused(checkpoint: Path, text: str) -> None:
    """JSON of another type, JSON that is too deep for Python, and an empty file are refused."""
    (checkpoint / "meta.json").write_text(text)
    assert load(checkpoint) is None


def test_weights_that_claim_too_much_are_refused(checkpoint: Path) -> None:
    """The header promises more bytes than the file has."""
    data = bytearray(safetensors.torch.save(WEIGHTS))
    data[0:8] = (2**40).to_bytes(8, "little")
    sign(checkpoint, "weights.safetensors", bytes(data))
    assert load(checkpoint) is None
