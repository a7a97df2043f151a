"""Who goes first where processes and threads share the cores of one machine."""

import os

# Of acting and of local environments beside a trainer: it is what they end up waiting for,
# and they catch up while it waits for them.
SHARED_CORE_NICENESS = 10


def let_others_go_first(pid: int, niceness: int) -> None:
    """Makes a process, or on Linux a thread, at least so nice.

    Never less nice than it is: that takes privileges.
    """
    os.setpriority(os.PRIO_PROCESS, pid, max(niceness, os.getpriority(os.PRIO_PROCESS, pid)))
