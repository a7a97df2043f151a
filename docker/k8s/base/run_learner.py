"""Runs `seed <arguments>` as a container's first process, for the Job of a learner.

A learner that is asked to stop saves and ends with exit code 0. To the Job that means a complete
run, although perhaps only a node is drained. So this program then ends with 143, as a program that
does not handle SIGTERM, and the Job starts another learner, which resumes.
"""

import signal
import subprocess
import sys

STOPPED = 128 + signal.SIGTERM


def exit_code(learner: int, *, was_stopped: bool) -> int:
    """Returns the exit code for the Job.

    Args:
      learner: the learner's own; negative: the signal that killed it.
      was_stopped: whether it was asked to stop.
    """
    if learner < 0:
        return 128 - learner
    return STOPPED if was_stopped and learner == 0 else learner


def main() -> int:
    """Runs the learner to its end and passes SIGTERM on to it; returns the exit code."""
    stops = {signal.SIGTERM}
    # SIGTERM waits until there is a learner to pass it on to. The learner itself gets it at once.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    learner = subprocess.Popen(["seed", *sys.argv[1:]], preexec_fn=unblock)
    was_stopped = False

    def stop(*_: object) -> None:
        nonlocal was_stopped
        was_stopped = True
        learner.terminate()

    signal.signal(signal.SIGTERM, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
    code = learner.wait()
    return exit_code(code, was_stopped=was_stopped)


def unblock() -> None:
    """Called in the learner's process: what is blocked here would be blocked there."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


if __name__ == "__main__":
    raise SystemExit(main())
