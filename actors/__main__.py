"""Makes `python -m actors` the same as `seed actor`."""

import sys

from seed import quiet_grpc  # noqa: F401 (before anything imports gRPC)

# isort: split
from actors.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
