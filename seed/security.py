"""How each side proves its identity: certificates and a token, read from files and checked.

Both sides and the health check read the files once, when they start. So an unusable file is
an error at the start, not a failed connection later. The contents are never logged.
"""

import logging
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from seed.addresses import is_local
from seed.errors import ConfigError, expected

_LOG = logging.getLogger(__name__)

# The metadata key under which a call carries "Bearer <token>", as in HTTP.
TOKEN_METADATA = "authorization"

# A shorter token can be guessed.
MIN_TOKEN_CHARS = 16


class TlsFiles(NamedTuple):
    """PEM files as the flags --tls-cert, --tls-key and --tls-ca name them."""

    cert: Path | None
    """This side's certificate, followed by those between it and its CA."""
    key: Path | None
    """The certificate's private key, not encrypted."""
    ca: Path | None
    """Certificates of the CAs that may sign the other side's certificate."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """Contents of the files, and their paths."""

    cert: bytes | None
    key: bytes | None = field(repr=False)
    ca: bytes | None
    files: TlsFiles


@dataclass(frozen=True, kw_only=True)
class Security:
    """How a side protects its TCP connections; a unix socket needs nothing."""

    tls: Tls | None = None
    """None: plain text."""
    token: str | None = field(default=None, repr=False)
    """The token that every call carries; None: no token."""

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a client's calls."""
        return () if self.token is None else ((TOKEN_METADATA, f"Bearer {self.token}"),)


PLAIN_TEXT = Security()


def check_cert_and_key(files: TlsFiles) -> None:
    """Raises ConfigError if only one of --tls-cert and --tls-key was given."""
    if (files.cert is None) != (files.key is None):
        missing = "tls_key" if files.key is None else "tls_cert"
        raise ConfigError(expected(missing, "both --tls-cert and --tls-key", "one of them"))


def check_client_flags(
    address: str, files: TlsFiles, token_file: Path | None, *, insecure: bool = False
) -> None:
    """Refuses a client's flags that contradict each other, or that would reveal the token.

    Raises:
      ConfigError: a certificate without its key or without --tls-ca, or a token that would
        travel to another machine in plain text without `insecure`.
    """
    check_cert_and_key(files)
    if files.cert is not None and files.ca is None:
        raise ConfigError(expected("tls_ca", "the learner's CA, with --tls-cert", "none"))
    if token_file is not None and files.ca is None and not is_local(address) and not insecure:
        wanted = f"--tls-ca beside it, as {address} is another machine, or --insecure"
        raise ConfigError(expected("token_file", wanted, "neither"))


def load_security(files: TlsFiles, token_file: Path | None) -> Security:
    """Reads the files that the flags name. Without any files nothing is encrypted.

    Raises:
      ConfigError: a file cannot be read, or its contents do not fit its flag.
    """
    check_cert_and_key(files)
    tls = _load_tls(files) if any(files) else None
    token = None if token_file is None else read_token(token_file)
    return Security(tls=tls, token=token)


def read_token(path: Path) -> str:
    """Returns the token in `path`, without the white space around it.

    Raises:
      ConfigError: the file is unreadable, or the token is too short or more than one word of
        ASCII. The message never shows the contents of the file.
    """
    try:
        token = _read("token_file", path).decode("ascii").strip()
    except UnicodeDecodeError:
        token = ""
    if len(token) < MIN_TOKEN_CHARS or not token.isprintable() or " " in token:
        wanted = f"one word of {MIN_TOKEN_CHARS} or more ASCII letters, digits or signs in the file"
        raise ConfigError(expected("token_file", wanted, f"something else in {path}"))
    _warn_if_others_can_read("token_file", path)
    return token


def _load_tls(files: TlsFiles) -> Tls:
    # gRPC would report a file that is no certificate only later, as "handshake failed".
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = Tls(
        cert=None if files.cert is None else _read("tls_cert", files.cert),
        key=None if files.key is None else _read("tls_key", files.key),
        ca=None if files.ca is None else _read("tls_ca", files.ca),
        files=files,
    )
    if files.cert is not None and files.key is not None:
        _check_pair(context, files.cert, files.key)
        _warn_if_others_can_read("tls_key", files.key)
    if files.ca is not None:
        try:
            context.load_verify_locations(files.ca)
        except ssl.SSLError as error:
            raise ConfigError(expected("tls_ca", "certificates in PEM", files.ca)) from error
    return tls


def _check_pair(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    def refuse_password() -> str:
        raise ConfigError(expected("tls_key", "a key without a password", key))

    try:
        context.load_cert_chain(cert, key, password=refuse_password)
    except ssl.SSLError as error:
        wanted = f"a private key in PEM, of the certificate in {cert}"
        raise ConfigError(expected("tls_key", wanted, f"{key} ({error.reason})")) from error


def _read(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            expected(flag, "a readable file", f"{path} ({error.strerror})")
        ) from error


def _warn_if_others_can_read(flag: str, path: Path) -> None:
    # Only a warning: secrets are often mounted like this in a container, which has no other users.
    if path.stat().st_mode & stat.S_IROTH:
        _LOG.warning("%s: every user of this machine can read %s; chmod 600 it", flag, path)
