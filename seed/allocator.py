"""Settings of the C library's allocator, made once at the start of a process."""

import ctypes

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8

# Freed memory at the end of the heap that a process keeps for later allocations.
_KEPT_BYTES = 1024 * 1024 * 1024


def keep_freed_memory() -> None:
    """Stops glibc from returning the memory of each message to the system.

    By default the buffers of one message, and the tensors of one update on the CPU,
    are unmapped when freed and faulted in page by page for the next: ten times the
    cost of encoding a group of Atari screens, and half as much again as an update of
    240 steps. Does nothing with other C libraries. Call it before starting threads.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        # No buffer gets a mapping of its own. A threshold could not do this: its maximum is
        # 32 MiB, the images of 297 Atari rows.
        mallopt(_M_MMAP_MAX, 0)
        # The arenas of other threads return memory to the system under any threshold.
        mallopt(_M_ARENA_MAX, 1)
