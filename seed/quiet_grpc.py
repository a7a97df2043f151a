"""Limits gRPC's own log to errors, because --log-format cannot reach it.

Import this module before gRPC; a later import has no effect. GRPC_VERBOSITY=INFO restores
gRPC's messages, for example those about failed TLS handshakes.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
