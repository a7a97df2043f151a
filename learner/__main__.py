"""`python -m learner PRESET [flags]`: the learner process, as `seed learner`."""

import os
import sys

# Python searches the current folder first, but a seed.py there is not ours. In a clone of this
# project the packages themselves are there.
if sys.path[0] == os.getcwd() != os.path.dirname(os.path.dirname(os.path.realpath(__file__))):
    del sys.path[0]

# isort: split
from seed.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "learner")
    sys.exit(main())
