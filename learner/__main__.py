"""`python -m learner PRESET [flags]`: the learner process, as `seed learner`."""

import sys

from seed.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "learner")
    sys.exit(main())
