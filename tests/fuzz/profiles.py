"""How the fuzz tests run: the same examples each time, and no more than seconds of them."""

from hypothesis import settings

# Deterministic, so that a red run is red again; a slow machine fails nothing.
QUICK = settings(max_examples=200, derandomize=True, deadline=None, database=None)
