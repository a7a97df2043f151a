"""`make certs`: its files are valid and private, and a second run keeps what it must."""

import stat
import subprocess
from pathlib import Path

import pytest

from tools.make_certs import main, make_certs


def verify(certs: Path, name: str, *flags: str, ca: Path | None = None) -> bool:
    """Tells whether openssl accepts <name>.pem for the use that the flags name."""
    command = ["openssl", "verify", "-CAfile", str((ca or certs) / "ca.pem"), *flags]
    return (
        subprocess.run([*command, str(certs / f"{name}.pem")], capture_output=True).returncode == 0
    )


def test_certificates_hold_for_their_use_and_hosts_alone(tmp_path: Path) -> None:
    """The learner's holds for its names and addresses, the actor's for clients."""
    make_certs(tmp_path, ["learner.example.org", "10.0.0.5"])
    assert verify(tmp_path, "learner", "-purpose", "sslserver")
    assert verify(tmp_path, "actor", "-purpose", "sslclient")
    assert not verify(tmp_path, "learner", "-purpose", "sslclient")
    assert not verify(tmp_path, "actor", "-purpose", "sslserver")
    for host in ("learner.example.org", "localhost"):
        assert verify(tmp_path, "learner", "-verify_hostname", host)
    for address in ("10.0.0.5", "127.0.0.1", "::1"):
        assert verify(tmp_path, "learner", "-verify_ip", address)
    assert not verify(tmp_path, "learner", "-verify_hostname", "elsewhere.example.org")


def test_other_users_can_read_nothing(tmp_path: Path) -> None:
    """Keys, token and leftovers are private under any umask."""
    directory = tmp_path / "a" / "certs"
    make_certs(directory, [])
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    names = ("ca.key", "ca.pem", "learner.key", "learner.pem", "actor.key", "actor.pem", "token")
    assert files == dict.fromkeys(names, 0o600)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_second_run_keeps_ca_and_token_and_renews_the_certificates(tmp_path: Path) -> None:
    """A new host needs no change at the actors."""
    make_certs(tmp_path, ["old"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    make_certs(tmp_path, ["new"])
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {name for name in before if before[name] == after[name]}
    assert kept == {"ca.key", "ca.pem", "token"}
    assert verify(tmp_path, "learner", "-verify_hostname", "new")


def test_no_two_cas_are_alike(certs: Path, other_certs: Path) -> None:
    """One CA accepts no certificate of another, although both have the same name."""
    assert not verify(certs, "learner", ca=other_certs)
    assert (certs / "token").read_text() != (other_certs / "token").read_text()


@pytest.mark.parametrize("host", ["a, DNS:*", "learner:50051", "", "a\nb", "-a"])
def test_text_that_is_not_a_host_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    """Else a comma would add names that the user did not ask for."""
    assert main([str(tmp_path / "certs"), f"--host={host}"]) == 1
    assert "make_certs: host: expected a name or an IP address" in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_missing_openssl_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most systems have it, and some do not."""
    monkeypatch.setenv("PATH", "")
    assert main([str(tmp_path / "certs")]) == 1
    assert "openssl" in capsys.readouterr().err
