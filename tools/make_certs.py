"""Makes a private CA, certificates and a token, by which learner and actors know each other.

    python3 tools/make_certs.py certs --host learner.example.org --host 10.0.0.5

Needs only Python and the openssl command, so that it runs on a machine without .venv: hence
argparse and openssl, not tyro and cryptography. A second run keeps the CA and the token, so that
running actors are still accepted, and makes new certificates.
"""

import argparse
import ipaddress
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

CA_DAYS = 3650
LEAF_DAYS = 365

# Names by which an actor on the learner's machine, and a health check, call the learner.
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

_HOST_NAME = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?")

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

_CA_CONFIG = """
[req]
distinguished_name = name
x509_extensions = extensions
[name]
[extensions]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""

_LEAF_EXTENSIONS = """
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = {usage}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


def make_certs(directory: Path, hosts: Sequence[str], *, days: int = LEAF_DAYS) -> None:
    """Fills `directory` with files that only the owner may read.

        ca.pem       both sides      the CA's certificate                  --tls-ca
        ca.key       no process      signs further certificates; keep it away from machines
        learner.pem, learner.key     for the hosts, and this machine       --tls-cert, --tls-key
        actor.pem, actor.key         mutual TLS: one for all actors        --tls-cert, --tls-key
        token        both sides      64 random characters                  --token-file

    Args:
      directory: made if it does not exist.
      hosts: names and IP addresses by which actors call the learner.
      days: validity of the two certificates; the CA's is ten years.

    Raises:
      ValueError: a host is neither a name nor an IP address.
      subprocess.CalledProcessError: openssl fails; its stderr says why.
    """
    names = [_alternative_name(host) for host in dict.fromkeys([*hosts, *LOCAL_HOSTS])]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (directory / "ca.key").exists():
        _make_ca(directory)
    alternatives = f"subjectAltName = {', '.join(names)}\n"
    _make_leaf(directory, "learner", "serverAuth", alternatives, days)
    _make_leaf(directory, "actor", "clientAuth", "", days)
    token = directory / "token"
    if not token.exists():
        with open(token, "x", opener=_open_private) as file:
            file.write(secrets.token_hex(32) + "\n")


def _make_ca(directory: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        config = Path(scratch, "ca.cnf")
        config.write_text(_CA_CONFIG)
        request = ("req", "-x509", *_NEW_KEY, "-sha256", "-subj", "/CN=SEED private CA")
        _openssl(
            *(*request, "-days", str(CA_DAYS), "-config", str(config)),
            *("-keyout", str(directory / "ca.key"), "-out", str(directory / "ca.pem")),
        )


def _make_leaf(directory: Path, name: str, usage: str, more_extensions: str, days: int) -> None:
    """Makes <name>.key and <name>.pem.

    The files are made in a scratch directory first: a failure leaves the old pair in place.
    """
    with tempfile.TemporaryDirectory(dir=directory) as aside:
        key, request, certificate, extensions, config = (
            str(Path(aside, part)) for part in ("key", "request", "pem", "ext", "cnf")
        )
        Path(extensions).write_text(_LEAF_EXTENSIONS.format(usage=usage) + more_extensions)
        Path(config).write_text("[req]\ndistinguished_name = name\n[name]\n")
        _openssl(
            *("req", "-new", *_NEW_KEY, "-subj", f"/CN=SEED {name}", "-config", config),
            *("-keyout", key, "-out", request),
        )
        _openssl(
            *("x509", "-req", "-sha256", "-in", request, "-out", certificate),
            *("-CA", str(directory / "ca.pem"), "-CAkey", str(directory / "ca.key")),
            *("-set_serial", f"0x{secrets.token_hex(16)}", "-days", str(days)),
            *("-extfile", extensions),
        )
        os.replace(key, directory / f"{name}.key")
        os.replace(certificate, directory / f"{name}.pem")


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        # openssl would read a comma or a line break as further settings.
        if not _HOST_NAME.fullmatch(host):
            wanted = "a name or an IP address, without a port"
            raise ValueError(f"host: expected {wanted}, got {host!r}") from None
        return f"DNS:{host}"


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _openssl(*args: str) -> None:
    command = ["openssl", *args]
    subprocess.run(command, check=True, capture_output=True, text=True, umask=0o077)


def main(argv: Sequence[str]) -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Makes a private CA, certificates and a token.")
    parser.add_argument("directory", type=Path, help="where the files go")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        help="name or IP address by which actors call the learner; may be repeated",
    )
    parser.add_argument("--days", type=int, default=LEAF_DAYS, help="validity of the certificates")
    args = parser.parse_args(argv)
    try:
        make_certs(args.directory, args.host, days=args.days)
    except subprocess.CalledProcessError as error:
        print(f"make_certs: {error.cmd[:2]}: {error.stderr.strip()}", file=sys.stderr)
        return 1
    except (ValueError, OSError) as error:
        print(f"make_certs: {error}", file=sys.stderr)
        return 1
    print(f"{args.directory}: certificates for {', '.join([*args.host, *LOCAL_HOSTS])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
