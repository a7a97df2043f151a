"""Channels to a learner, and the reason why one cannot be connected.

Used by the actor and the health check, in their main threads.
"""

import contextlib
import socket
import ssl
from collections.abc import Sequence
from typing import Any

import grpc

from seed.addresses import grpc_target, is_unix, split_tcp
from seed.errors import AccessError, expected
from seed.security import Security, Tls

# Limit for each step of the diagnosis: connecting, the handshake, the first byte.
_PROBE_TIMEOUT_S = 5.0

# Learners are reached directly. gRPC would obey http_proxy, https_proxy and grpc_proxy: a proxy of
# the web cannot reach a unix socket, and often no other port than 443.
_NO_PROXY = ("grpc.enable_http_proxy", 0)


def connect(
    address: str, security: Security, options: Sequence[tuple[str, Any]] = ()
) -> grpc.Channel:
    """Returns a channel to "host:port" or "unix:PATH", connected on first use.

    A unix socket is never encrypted. The token belongs to each call, not to the channel:
    see `Security.metadata`. Proxies of the environment are not used.
    """
    options = (*options, _NO_PROXY)
    tls, target = security.tls, grpc_target(address)
    if tls is None or is_unix(address):
        return grpc.insecure_channel(target, options)
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.cert)
    return grpc.secure_channel(target, credentials, options)


def access_problem(address: str, security: Security) -> AccessError | None:
    """Returns why the client cannot talk to a learner that is running; None if no reason is found.

    gRPC reports a broken handshake almost as it reports an absent learner: at most the wording
    differs. So this function tries a handshake with Python's own TLS:

        we        learner   what happens
        plain     TLS       the handshake succeeds: the learner speaks TLS
        TLS       plain     the learner's answer is not TLS
        TLS       TLS       the learner's certificate is not accepted; Python says why
        TLS       mutual    after the handshake the learner hangs up: our certificate is
                            missing or not accepted

    Takes seconds if the other end accepts the connection and sends nothing.
    """
    if is_unix(address):
        return None
    tls = security.tls
    problem = _try_any_tls(address) if tls is None else _try_our_tls(address, tls)
    return None if problem is None else AccessError(f"{problem} ({address})")


def _try_any_tls(address: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(OSError):
        _is_spoken_to(address, context)
        return expected("tls_ca", "the CA of this learner, which speaks TLS", "no --tls-ca")
    return None


def _try_our_tls(address: str, tls: Tls) -> str | None:
    files = tls.files
    try:
        context = _client_context(tls)
        # A stopping learner hangs up too, but it does not accept a second connection.
        if _is_spoken_to(address, context) or _is_spoken_to(address, context):
            return None
    except ssl.SSLCertVerificationError as error:
        wanted = f"a learner whose certificate {files.ca} vouches for"
        return expected("tls_ca", wanted, error.verify_message)
    except ssl.SSLError as error:
        if error.reason == "WRONG_VERSION_NUMBER":
            return expected("tls_ca", "a learner that speaks TLS", "one that speaks plain text")
        return None
    except OSError:
        return None
    if files.cert is None:
        return expected("tls_cert", "a certificate, as this learner asks for", "no --tls-cert")
    return expected("tls_cert", "a certificate that the learner's --tls-ca vouches for", files.cert)


def _client_context(tls: Tls) -> ssl.SSLContext:
    """Returns settings that accept the same certificates as gRPC."""
    assert tls.ca is not None, "the flags were checked"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=tls.ca.decode("ascii", "ignore"))
    if tls.files.cert is not None:
        context.load_cert_chain(tls.files.cert, tls.files.key)
    return context


def _is_spoken_to(address: str, context: ssl.SSLContext) -> bool:
    """Tells whether the learner sends data once the connection is encrypted.

    A gRPC server speaks first, unless it hangs up. Raises OSError if the handshake fails.
    """
    context.set_alpn_protocols(["h2"])
    host, port = split_tcp(address)
    with (
        socket.create_connection((host, port), _PROBE_TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        try:
            return bool(encrypted.recv(1))
        except ConnectionResetError:
            return False
