"""The resetting LSTM against a loop that sets its state to zero."""

import pytest
import torch
from torch import Tensor, nn

from learner.networks.recurrent import ResettingLSTM
from tests.learner.builders import random_flags, seeded

B, F, H = 5, 3, 4


def make_lstm() -> ResettingLSTM:
    """Returns an LSTM whose weights are the same each time."""
    torch.manual_seed(0)
    return ResettingLSTM(F, H)


def row_by_row(
    lstm: nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor, is_first: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the result of `ResettingLSTM`, one environment and one row at a time."""
    outputs = torch.zeros(*inputs.shape[:2], H)
    hiddens, cells = [], []
    for b in range(inputs.shape[1]):
        h, c = hidden[b : b + 1], cell[b : b + 1]
        for t in range(len(inputs)):
            if is_first[t, b]:
                h, c = torch.zeros_like(h), torch.zeros_like(c)
            output, (h, c) = lstm(inputs[t, b].reshape(1, F), (h, c))
            outputs[t, b] = output[0]
        hiddens.append(h)
        cells.append(c)
    return outputs, torch.cat(hiddens), torch.cat(cells)


def random_inputs(num_rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Returns inputs [T, B, F] and a state [B, H] that is not zero."""
    return (
        torch.randn(num_rows, B, F, generator=generator),
        torch.randn(B, H, generator=generator),
        torch.randn(B, H, generator=generator),
    )


@pytest.mark.parametrize("probability", [0.0, 0.15, 0.6, 1.0])
@pytest.mark.parametrize("num_rows", [1, 2, 11])
def test_lstm_equals_loop_with_manual_resets(num_rows: int, probability: float) -> None:
    """Outputs and last state agree for any number of episode starts, also at row 0."""
    generator, lstm = seeded(num_rows), make_lstm()
    for _ in range(3):
        inputs, hidden, cell = random_inputs(num_rows, generator)
        is_first = random_flags((num_rows, B), generator, probability)
        got = lstm(inputs, hidden, cell, is_first)
        expected = row_by_row(lstm.lstm, inputs, hidden, cell, is_first)
        for x, wanted in zip(got, expected, strict=True):
            torch.testing.assert_close(x, wanted)


@pytest.mark.parametrize("probability", [0.0, 0.05, 0.3])
def test_gradients_equal_those_of_loop_with_manual_resets(probability: float) -> None:
    """This holds for the gradients of weights, inputs and the state before."""
    gradients = []
    for run in (ResettingLSTM.forward, lambda lstm, *given: row_by_row(lstm.lstm, *given)):
        generator, lstm = seeded(3), make_lstm()
        given = random_inputs(12, generator)
        is_first = random_flags((12, B), generator, probability)
        leaves = [x.requires_grad_() for x in (*given, *lstm.parameters())]
        results = run(lstm, *given, is_first)
        # Every number of the results has a weight of its own in the loss.
        loss = torch.stack(
            [(x * torch.randn(x.shape, generator=seeded(9))).sum() for x in results]
        ).sum()
        loss.backward()
        gradients.append([x.grad for x in leaves])
    for got, expected in zip(*gradients, strict=True):
        assert got is not None
        torch.testing.assert_close(got, expected)


def test_rows_one_by_one_equal_one_call() -> None:
    """Acting row by row and training on all rows give the same."""
    generator, lstm = seeded(), make_lstm()
    inputs, hidden, cell = random_inputs(9, generator)
    is_first = random_flags((9, B), generator)
    expected, expected_hidden, expected_cell = lstm(inputs, hidden, cell, is_first)
    rows = []
    for t in range(9):
        row, hidden, cell = lstm(inputs[t : t + 1], hidden, cell, is_first[t : t + 1])
        rows.append(row)
    torch.testing.assert_close(torch.cat(rows), expected)
    torch.testing.assert_close(hidden, expected_hidden)
    torch.testing.assert_close(cell, expected_cell)


def test_no_gradient_crosses_the_start_of_an_episode() -> None:
    """Rows before the start of an episode have no influence on it."""
    lstm = make_lstm()
    inputs, hidden, cell = random_inputs(6, seeded())
    inputs.requires_grad_()
    is_first = torch.zeros(6, B, dtype=torch.bool)
    is_first[3, 1] = True
    outputs, _, _ = lstm(inputs, hidden, cell, is_first)
    outputs[3:].sum().backward()
    assert inputs.grad is not None
    reached = (inputs.grad[:3] != 0).any(-1).any(0)
    assert reached.tolist() == [True, False, True, True, True]


def test_batch_without_resets_runs_as_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row at which episodes start costs one more call, for any number of starts in it."""
    lstm, calls = make_lstm(), []
    forward = lstm.lstm.forward

    def counted(rows: Tensor, state: tuple[Tensor, Tensor]) -> object:
        calls.append(len(rows))
        return forward(rows, state)

    monkeypatch.setattr(lstm.lstm, "forward", counted)
    inputs, hidden, cell = random_inputs(8, seeded())
    is_first = torch.zeros(8, B, dtype=torch.bool)
    is_first[0, 2] = True
    lstm(inputs, hidden, cell, is_first)
    assert calls == [8]
    is_first[5, :3] = True
    lstm(inputs, hidden, cell, is_first)
    assert calls[1:] == [5, 3]


def test_state_that_overflowed_ends_with_its_episode() -> None:
    """A product with 0 would not do: 0 times infinity is NaN, which would stay in the slot."""
    lstm = make_lstm()
    inputs, hidden, cell = random_inputs(3, seeded())
    is_first = torch.zeros(3, B, dtype=torch.bool)
    is_first[1] = True
    broken = (torch.full_like(hidden, torch.inf), torch.full_like(cell, torch.nan))
    outputs, *state = lstm(inputs, *broken, is_first)
    expected, *expected_state = lstm(inputs, hidden, cell, is_first)
    for got, wanted in zip([outputs[1:], *state], [expected[1:], *expected_state], strict=True):
        torch.testing.assert_close(got, wanted)


def test_forget_bias_moves_the_forget_gates_and_nothing_else() -> None:
    """More of the cell is kept, and no more is written to it than before."""

    def next_cell(forget_bias: float, cell: float) -> Tensor:
        torch.manual_seed(0)
        lstm = ResettingLSTM(F, H, forget_bias)
        zeros, is_first = torch.zeros(1, 1, F), torch.zeros(1, 1, dtype=torch.bool)
        state = (torch.zeros(1, H), torch.full((1, H), cell))
        return lstm(zeros, *state, is_first)[2].detach()

    def kept(forget_bias: float) -> Tensor:
        return next_cell(forget_bias, 1.0) - next_cell(forget_bias, 0.0)

    torch.testing.assert_close(next_cell(3.0, 0.0), next_cell(0.0, 0.0))
    torch.testing.assert_close(kept(3.0).logit() - kept(0.0).logit(), torch.full((1, H), 3.0))
