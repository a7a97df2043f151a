"""How the fuzz tests run: the same examples each time, for a few seconds each."""

from hypothesis import settings

# Deterministic, so that a failure repeats; a slow machine fails no test.
QUICK = settings(max_examples=200, derandomize=True, deadline=None, database=None)
