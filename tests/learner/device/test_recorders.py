"""Recorded work on a CPU: it is done again in the memory of its first results."""

import torch

from learner.device.recorders import HostRecorder


def test_recorded_work_stays_where_it_is() -> None:
    """A repetition reads the present input, and overwrites its earlier results."""
    given = torch.zeros(3)
    repeat = HostRecorder().record(lambda: {"sum": given.sum(), "twice": 2 * given})
    first = repeat()
    given.fill_(4.0)
    second = repeat()
    assert first["sum"].item() == second["sum"].item() == 12.0
    assert first["twice"].data_ptr() == second["twice"].data_ptr()
