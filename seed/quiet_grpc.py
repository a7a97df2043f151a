"""Keeps gRPC's own log, which no --log-format reaches, to errors. Imported for that effect.

Only before gRPC itself is imported does it have any. GRPC_VERBOSITY=INFO brings back its
news, of every failed TLS handshake for one.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
