"""Tables of rows: reading, writing and moving some rows of several tensors."""

import pytest
import torch

from learner.acting.rows import RowTable, row_indices
from tests.learner.builders import seeded
from tests.support.pretended_device import DEVICE

CPU = torch.device("cpu")

DEVICES = [
    CPU,
    DEVICE,
    pytest.param(
        torch.device("cuda"),
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]


def make_tensors(num_rows: int, device: torch.device) -> list[torch.Tensor]:
    """Returns frames, numbers and vectors, [num_rows, ...]."""
    generator = seeded()
    frames = torch.randint(0, 256, (num_rows, 2, 3), dtype=torch.uint8, generator=generator)
    numbers = torch.randint(0, 9, (num_rows,), generator=generator)
    vectors = torch.rand(num_rows, 4, generator=generator)
    return [frames.to(device), numbers.to(device), vectors.to(device)]


def rows_of(*numbers: int) -> torch.Tensor:
    """Returns int64 [n] row numbers."""
    return torch.tensor(numbers)


@pytest.mark.parametrize("device", DEVICES)
def test_written_rows_are_read_back_and_others_stay(device: torch.device) -> None:
    """Only the rows that are named change."""
    held, values = make_tensors(6, device), make_tensors(2, device)
    before = [x.clone() for x in held]
    table, rows = RowTable(held), rows_of(4, 1).to(device)
    table.write(rows, values)
    for read, value in zip(table.read(rows), values, strict=True):
        torch.testing.assert_close(read, value)
    others = rows_of(0, 2, 3, 5).to(device)
    for now, then in zip(held, before, strict=True):
        torch.testing.assert_close(now[others], then[others])


@pytest.mark.parametrize("device", DEVICES)
def test_write_takes_values_behind_a_time_axis_of_one(device: torch.device) -> None:
    """A step [1, n, ...] is written to n rows."""
    held, values = make_tensors(6, device), make_tensors(2, device)
    RowTable(held).write(rows_of(0, 5).to(device), [x.unsqueeze(0) for x in values])
    for now, value in zip(held, values, strict=True):
        torch.testing.assert_close(now[[0, 5]], value)


@pytest.mark.parametrize("device", DEVICES)
def test_read_rows_are_copies(device: torch.device) -> None:
    """What was read stays when the table is written again."""
    held = make_tensors(3, device)
    table, rows = RowTable(held), rows_of(2).to(device)
    read = table.read(rows)
    kept = [x.clone() for x in read]
    table.write(rows, [torch.zeros_like(x) for x in read])
    for now, then in zip(read, kept, strict=True):
        torch.testing.assert_close(now, then)


@pytest.mark.parametrize("device", DEVICES)
def test_moved_rows_come_from_before_the_move(device: torch.device) -> None:
    """Rows that swap places do not overwrite each other."""
    held = make_tensors(3, device)
    before = [x.clone() for x in held]
    RowTable(held).move(rows_of(0, 1).to(device), rows_of(1, 0).to(device))
    for now, then in zip(held, before, strict=True):
        torch.testing.assert_close(now[[1, 0, 2]], then)


def test_table_shares_memory_with_its_tensors() -> None:
    """A tensor shows what was written through the table."""
    held = torch.zeros(2)
    RowTable([held]).write(rows_of(1), [torch.ones(1)])
    assert held.tolist() == [0, 1]


def test_rows_of_another_shape_are_refused() -> None:
    """Values that do not fit are an error, not a broadcast."""
    table = RowTable([torch.zeros(4, 3)])
    with pytest.raises(ValueError):
        table.write(rows_of(0, 1), [torch.ones(2, 2)])


def test_row_indices_share_the_arrays_memory_on_the_cpu() -> None:
    """No bytes are copied on a CPU."""
    rows = rows_of(3, 1).numpy()
    assert row_indices(rows, CPU).data_ptr() == rows.ctypes.data


@pytest.mark.parametrize("device", DEVICES)
def test_table_of_no_tensors_takes_rows_of_any_device(device: torch.device) -> None:
    """A network without LSTM and frame stack keeps no state."""
    table, rows = RowTable([]), rows_of(1).to(device)
    table.write(rows, [])
    table.move(rows, rows)
    assert table.read(rows) == []
