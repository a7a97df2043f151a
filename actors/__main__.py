"""Makes `python -m actors` the same as `seed actor`."""

import sys

from actors.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
