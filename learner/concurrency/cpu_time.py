"""CPU time of a process or of one of its threads.

Called by the thread that makes the learner's reports, and by seed_bench around a measurement.
"""

import psutil


def cpu_seconds_of(pid: int) -> float:
    """Returns the CPU seconds, user and system, that a process has used.

    Raises:
      psutil.Error: there is no such process, or it belongs to another user.
    """
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def cpu_seconds_of_thread(pid: int, thread_id: int) -> float:
    """Returns the CPU seconds, user and system, of the thread with this native id.

    Raises:
      OSError: there is no such thread, or the system does not report the threads of other
        processes (macOS).
    """
    try:
        threads = psutil.Process(pid).threads()
    except psutil.Error as error:
        raise ProcessLookupError(f"process {pid}: {error}") from error
    for thread in threads:
        if thread.id == thread_id:
            return thread.user_time + thread.system_time
    raise ProcessLookupError(f"process {pid} has no thread {thread_id}")
