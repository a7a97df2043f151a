"""Makes `python -m actors` the same as `seed actor`."""

import os
import sys

# Python searches the current folder first, but a seed.py there is not ours. In a clone of this
# project the packages themselves are there.
if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.realpath(__file__))):
    del sys.path[0]

# isort: split
from seed import search_path

# isort: split
from seed import quiet_grpc  # noqa: F401 (before anything imports gRPC)

# isort: split
from actors.main import main

if __name__ == "__main__":
    search_path.search_current_folder()
    sys.exit(main(sys.argv[1:]))
