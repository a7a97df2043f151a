"""What the learner's gRPC server is set to: sizes and signs of life.

Read once, on the server thread, when the server is made.
"""

from learner.serving.session import Timeouts
from seed import wire


def server_options(timeouts: Timeouts, *, shares_ports: bool = False) -> list[tuple[str, int]]:
    """Returns the channel arguments of the learner's server, or of one of several."""
    return [
        ("grpc.max_receive_message_length", wire.MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", wire.MAX_MESSAGE_BYTES),
        # A busy port is an error, not a second listener that gets half the actors.
        ("grpc.so_reuseport", int(shares_ports)),
        # Actors ping every 30 s, also while a paused learner sends them nothing, which
        # gRPC would by default take for abuse.
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        # Connections that never speak HTTP/2, and those that no longer do.
        ("grpc.server_handshake_timeout_ms", int(timeouts.hello_s * 1000)),
        ("grpc.keepalive_time_ms", int(timeouts.ping_every_s * 1000)),
        ("grpc.keepalive_timeout_ms", int(timeouts.ping_answer_s * 1000)),
        # Not the keepalive timeout but this one, a minute by default, ends the connection.
        ("grpc.http2.ping_timeout_ms", int(timeouts.ping_answer_s * 1000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
