"""The files of a directory that `make_certs` filled, as the security of each side."""

from pathlib import Path

from seed.security import Security, TlsFiles, load_security


def learner_security(certs: Path, *, mutual: bool = False, token: bool = False) -> Security:
    """Returns a learner's security; with `mutual` it asks actors for certificates."""
    ca = certs / "ca.pem" if mutual else None
    files = TlsFiles(certs / "learner.pem", certs / "learner.key", ca)
    return load_security(files, certs / "token" if token else None)


def actor_security(
    certs: Path | None, *, own: Path | None = None, token: Path | None = None
) -> Security:
    """Returns what an actor runs with.

    Args:
      certs: whose CA it trusts; None: it speaks plain text.
      own: whose actor's certificate it shows; None: none.
      token: the directory of its token; None: it has none.
    """
    files = TlsFiles(
        cert=own / "actor.pem" if own else None,
        key=own / "actor.key" if own else None,
        ca=certs / "ca.pem" if certs else None,
    )
    return load_security(files, token / "token" if token else None)
