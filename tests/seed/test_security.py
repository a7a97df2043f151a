"""The flags and files that are refused before anything connects, and the messages."""

import logging
import subprocess
from pathlib import Path

import pytest

from seed.errors import ConfigError
from seed.security import (
    Security,
    TlsFiles,
    check_client_flags,
    load_security,
    read_token,
)

SECRET = "correct-horse-battery"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    """Writes a file that only its owner can read."""
    path.write_text(text)
    path.chmod(mode)
    return path


def test_no_flags_are_plain_text() -> None:
    """There is no TLS and no token."""
    security = load_security(TlsFiles(None, None, None), None)
    assert security == Security()
    assert security.metadata == ()


def test_files_of_make_certs_are_read(certs: Path) -> None:
    """They are read unchanged, and the token without its newline."""
    files = TlsFiles(certs / "learner.pem", certs / "learner.key", certs / "ca.pem")
    security = load_security(files, certs / "token")
    assert security.tls is not None
    contents = (security.tls.cert, security.tls.key, security.tls.ca)
    names = ("learner.pem", "learner.key", "ca.pem")
    assert contents == tuple((certs / name).read_bytes() for name in names)
    token = (certs / "token").read_text().strip()
    assert security.metadata == (("authorization", f"Bearer {token}"),)
    assert token not in repr(security) and "PRIVATE KEY" not in repr(security)


@pytest.mark.parametrize(
    "text",
    ["", " \n", "short", "a" * 15, f"{SECRET} {SECRET}", "tökens-are-ascii-only", "a" * 16 + "\0"],
)
def test_token_that_cannot_be_one_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    """It is empty, too short to be secret, or not fit for a header."""
    path = write(tmp_path / "token", text)
    with pytest.raises(ConfigError, match="^token_file: expected one word of 16 or more") as caught:
        read_token(path)
    assert not text.strip() or text.strip() not in str(caught.value)


def test_token_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error holds the reason."""
    with pytest.raises(ConfigError, match=r"^token_file: expected a readable file.*No such file"):
        read_token(tmp_path / "token")


def test_secrets_that_others_can_read_are_warned_of(
    tmp_path: Path, certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning names token or key by file, and never logs the content."""
    token = write(tmp_path / "token", SECRET, 0o644)
    key = write(tmp_path / "key", (certs / "actor.key").read_text(), 0o644)
    with caplog.at_level(logging.INFO):
        load_security(TlsFiles(certs / "actor.pem", key, None), token)
    assert caplog.messages == [
        f"{field}: every user of this machine can read {path}; chmod 600 it"
        for field, path in (("tls_key", key), ("token_file", token))
    ]
    caplog.clear()
    for path in (token, key):
        path.chmod(0o640)
    load_security(TlsFiles(certs / "actor.pem", key, None), token)
    assert caplog.messages == []


def test_key_of_another_certificate_is_refused(certs: Path) -> None:
    """gRPC would say so only with the first handshake, and not clearly."""
    files = TlsFiles(certs / "learner.pem", certs / "actor.key", None)
    with pytest.raises(ConfigError, match=r"^tls_key: expected a private key.*learner\.pem"):
        load_security(files, None)


def test_key_with_a_password_is_refused_rather_than_asked_for(certs: Path, tmp_path: Path) -> None:
    """The terminals of a fleet have no user who could type it."""
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:x", "-out", locked]
        + ["-in", certs / "learner.key"],
        check=True,
        capture_output=True,
    )
    with pytest.raises(ConfigError, match="^tls_key: expected a key without a password"):
        load_security(TlsFiles(certs / "learner.pem", locked, None), None)


def test_files_that_are_not_pem_are_refused(certs: Path, tmp_path: Path) -> None:
    """The error names the flag."""
    junk = write(tmp_path / "junk", "no certificate")
    with pytest.raises(ConfigError, match="^tls_ca: expected certificates in PEM"):
        load_security(TlsFiles(None, None, junk), None)
    with pytest.raises(ConfigError, match="^tls_key: expected a private key in PEM"):
        load_security(TlsFiles(junk, certs / "learner.key", None), None)
    with pytest.raises(ConfigError, match="^tls_ca: expected a readable file"):
        load_security(TlsFiles(None, None, tmp_path), None)


PEM = Path("x.pem")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (TlsFiles(PEM, None, PEM), "^tls_key: expected both"),
        (TlsFiles(None, PEM, PEM), "^tls_cert: expected both"),
        (TlsFiles(PEM, PEM, None), "^tls_ca: expected the learner's CA"),
    ],
)
def test_half_of_what_tls_needs_is_refused(files: TlsFiles, message: str) -> None:
    """No file is opened before."""
    with pytest.raises(ConfigError, match=message):
        check_client_flags("learner:1", files, None)


def test_token_does_not_leave_the_machine_in_plain_text() -> None:
    """Only --insecure sends it, since anyone on the network could read it."""
    plain, tls = TlsFiles(None, None, None), TlsFiles(None, None, PEM)
    with pytest.raises(ConfigError, match="^token_file: expected --tls-ca.*learner:1.*--insecure"):
        check_client_flags("learner:1", plain, Path("token"))
    check_client_flags("learner:1", plain, Path("token"), insecure=True)
    check_client_flags("learner:1", tls, Path("token"))
    for local in ("127.0.0.1:1", "unix:s"):
        check_client_flags(local, plain, Path("token"))
