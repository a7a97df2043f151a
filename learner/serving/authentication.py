"""Who may call the learner: TLS for its TCP addresses, the token for every call.

`TokenCheck` runs on the server's event loop, before any part of a call except its metadata
is read. So a caller without the token costs no memory and no slot.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence

import grpc

from learner.serving.limits import LogLimiter
from seed.errors import AccessError, expected
from seed.grpc_status import status_of
from seed.security import Security

_LOG = logging.getLogger(__name__)

# Kubernetes and other monitors cannot send a token. Health checks tell nothing about the run.
_OPEN_TO_ALL = "/grpc.health.v1.Health/"

_Handler = grpc.RpcMethodHandler | None


def server_credentials(security: Security) -> grpc.ServerCredentials | None:
    """Returns the credentials for TLS at TCP addresses; None for plain text.

    With a CA, TLS is mutual: a client without a certificate of that CA cannot connect.
    """
    tls = security.tls
    if tls is None:
        return None
    assert tls.key is not None and tls.cert is not None, "the flags were checked"
    return grpc.ssl_server_credentials(
        [(tls.key, tls.cert)],
        root_certificates=tls.ca,
        require_client_auth=tls.ca is not None,
    )


def interceptors(security: Security) -> Sequence[grpc.aio.ServerInterceptor]:
    """Returns the interceptors that check the token; none if there is no token."""
    return () if security.token is None else (TokenCheck(security),)


class TokenCheck(grpc.aio.ServerInterceptor):
    """Ends every call without the token with UNAUTHENTICATED, except health checks."""

    def __init__(self, security: Security, log: LogLimiter | None = None) -> None:
        ((self._key, wanted),) = security.metadata
        self._wanted = wanted.encode()
        self._log = log or LogLimiter()
        # A stream handler for every method: gRPC would first read the message of a unary call.
        self._refusal = grpc.stream_stream_rpc_method_handler(self._refuse)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler:
        """Returns the handler of the method that was called, or the refusal."""
        metadata = dict(handler_call_details.invocation_metadata)
        if handler_call_details.method.startswith(_OPEN_TO_ALL) or self._has_token(metadata):
            return await continuation(handler_call_details)
        return self._refusal

    def _has_token(self, metadata: dict[str, str | bytes]) -> bool:
        given = metadata.get(self._key, "")
        given = given.encode() if isinstance(given, str) else given
        # Takes the same time for any wrong token, so the time reveals nothing about the right one.
        return hmac.compare_digest(given, self._wanted)

    async def _refuse(self, _: object, context: grpc.aio.ServicerContext) -> None:
        has_one = any(key == self._key for key, _ in context.invocation_metadata() or ())
        got = "another one" if has_one else "none"
        error = AccessError(expected("token_file", "the token that the learner was given", got))
        if self._log.is_due():
            _LOG.warning("refused a call from %s: %s", context.peer(), error)
        await context.abort(status_of(error), str(error))
