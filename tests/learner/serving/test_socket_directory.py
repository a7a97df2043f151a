"""Local actors' sockets: found a place for, wherever TMPDIR points."""

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest

from learner.serving import socket_directory
from learner.serving.socket_directory import make_socket_directory
from seed.errors import ConfigError


@pytest.fixture(autouse=True)
def _fresh_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `tempfile` read TMPDIR again."""
    monkeypatch.setattr(tempfile, "tempdir", None)


def bind_in(directory: Path) -> None:
    """Binds the socket with the longest name, and removes the directory."""
    path = directory / "learner.sock-999"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    path.unlink()
    directory.rmdir()


@pytest.mark.parametrize("name", ["tmp", "with space", "100%", "café"])
def test_temporary_directory_is_used(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Only this user can open it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        chosen = Path(parent) / name
        chosen.mkdir()
        monkeypatch.setenv("TMPDIR", str(chosen))
        directory = make_socket_directory()
        assert directory.parent == chosen
        assert directory.stat().st_mode & 0o777 == 0o700
        bind_in(directory)


@pytest.mark.parametrize("name", ["x" * 100, "ü" * 50, "a,b"])
def test_temporary_directory_that_takes_no_socket_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A batch system's scratch directory may have a long name; nothing is left there."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / name))
    directory = make_socket_directory()
    assert directory.parent == Path("/tmp")
    assert not list((tmp_path / name).iterdir())
    bind_in(directory)


def test_file_system_without_sockets_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shared and mounted file systems refuse to bind one."""

    class Socket(socket.socket):
        def bind(self, address: Any, /) -> None:
            if address.startswith(os.fsencode(tmp_path)):
                raise OSError(95, "Operation not supported")
            super().bind(address)

    monkeypatch.setattr(socket_directory.socket, "socket", Socket)
    monkeypatch.setattr(socket_directory, "_candidates", lambda: iter((str(tmp_path), "/tmp")))
    monkeypatch.setattr(socket_directory, "socket_path_problem", lambda path: None)
    directory = make_socket_directory()
    assert directory.parent == Path("/tmp")
    monkeypatch.undo()
    bind_in(directory)


def test_missing_temporary_directory_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TMPDIR may name a directory of the job before."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    bind_in(make_socket_directory())


def test_every_directory_that_was_tried_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names TMPDIR, the limit, and what is wrong with each directory."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    candidates = (str(long), str(tmp_path / "missing"))
    monkeypatch.setattr(socket_directory, "_candidates", lambda: iter(candidates))
    wanted = "^TMPDIR: expected a directory for sockets .* at most 76 bytes, got "
    with pytest.raises(ConfigError, match=wanted) as caught:
        make_socket_directory()
    assert f"{long}: it has {len(os.fsencode(long)) + 31} bytes" in str(caught.value)
    assert "missing: No such file or directory" in str(caught.value)
