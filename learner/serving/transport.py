"""Options of the learner's gRPC server: message sizes and keepalive pings.

Read once, on the server thread, when the server is made.
"""

from learner.serving.session import Timeouts
from seed import wire


def server_options(timeouts: Timeouts, *, shares_ports: bool = False) -> list[tuple[str, int]]:
    """Returns the channel arguments of the learner's only server, or of one of several."""
    return [
        ("grpc.max_receive_message_length", wire.MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", wire.MAX_MESSAGE_BYTES),
        # A busy port is an error, not a second listener that gets half the actors.
        ("grpc.so_reuseport", int(shares_ports)),
        # Actors ping every 30 s, even while a paused learner sends them nothing. By default
        # gRPC would treat that as abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        # Drops connections that never speak HTTP/2, and those that have stopped speaking it.
        ("grpc.server_handshake_timeout_ms", int(timeouts.hello_s * 1000)),
        ("grpc.keepalive_time_ms", int(timeouts.ping_every_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(timeouts.ping_answer_s * 1000)),
        # This timeout, a minute by default, ends the connection, not the keepalive timeout.
        ("grpc.http2.ping_timeout_ms", int(timeouts.ping_answer_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
