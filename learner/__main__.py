"""`python -m learner PRESET [flags]`: the learner process."""

import sys

from learner.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
