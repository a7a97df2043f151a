"""n-step returns against the plain sum, over every pattern of ends that fits a window."""

import pytest
import torch
from torch import Tensor

from learner.algos.n_step import n_step_returns

T = 5
DISCOUNT_FACTOR = 0.9

# Rows by letter: F first of an episode, N in the middle of one, L lost life (terminated,
# and the game goes on), E terminated and U truncated, after both of which comes F.
ROW_KINDS = "NLEU"


def all_patterns(num_rows: int) -> list[str]:
    """Returns every sequence of rows that environments can give."""
    patterns = ["F", *ROW_KINDS]
    for _ in range(num_rows - 1):
        patterns = [
            pattern + kind
            for pattern in patterns
            for kind in ("F" if pattern[-1] in "EU" else ROW_KINDS)
        ]
    return patterns


def flags(patterns: list[str], kinds: str) -> Tensor:
    """Returns bool [T+1, B], true where a row of the B patterns is of one of `kinds`."""
    return torch.tensor([[kind in kinds for kind in pattern] for pattern in patterns]).T


def solve(patterns: list[str], rewards: Tensor, q_values: Tensor, n_step: int) -> Tensor:
    """Returns the returns of B patterns, [T, B]; row 0 of `rewards` [T+1, B] is not used."""
    terminated = flags(patterns, "LE")
    return n_step_returns(
        rewards=rewards[1:],
        discounts=DISCOUNT_FACTOR * (~terminated[1:]).to(rewards.dtype),
        mask=(~flags(patterns, "F")[1:]).to(rewards.dtype),
        bootstrap_values=q_values,
        n_step=n_step,
    )


def random_inputs(patterns: list[str], rng_seed: int = 0) -> tuple[Tensor, Tensor]:
    """Returns rewards and q, float64 [T+1, B]."""
    generator = torch.Generator().manual_seed(rng_seed)
    shape = (2, len(patterns[0]), len(patterns))
    rewards, q_values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return rewards, q_values


def literal_return(
    pattern: str, rewards: list[float], q_values: list[float], t: int, n_step: int
) -> float:
    """Returns G_t by the definition, in plain Python; row t has a transition."""
    total = 0.0
    for i in range(1, n_step + 1):
        total += DISCOUNT_FACTOR ** (i - 1) * rewards[t + i]
        if pattern[t + i] in "LE":
            return total
        if pattern[t + i] == "U" or i == n_step or t + i == len(pattern) - 1:
            return total + DISCOUNT_FACTOR**i * q_values[t + i]
    raise AssertionError


@pytest.mark.parametrize("n_step", [1, 2, 3, T, T + 2])
def test_returns_equal_the_literal_sum_for_every_pattern_of_ends(n_step: int) -> None:
    """The patterns hold terminated and truncated ends, lost lives, several episodes, and n > T."""
    patterns = all_patterns(T + 1)
    rewards, q_values = random_inputs(patterns)
    expected = q_values[:-1].clone()
    columns = zip(rewards.T.tolist(), q_values.T.tolist(), strict=True)
    for b, (pattern, column) in enumerate(zip(patterns, columns, strict=True)):
        for t in range(T):
            if pattern[t] not in "EU":
                expected[t, b] = literal_return(pattern, *column, t, n_step)
    got = solve(patterns, rewards, q_values, n_step)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_patterns_hold_the_cases_that_matter() -> None:
    """The comparison above covers the hardest patterns."""
    patterns = all_patterns(T + 1)
    for pattern in ("NNNNNN", "UFNEFN", "EFUFEF", "NLNLNN", "FNNNNU", "FNNNNE", "NNNNUF", "LUFLEF"):
        assert pattern in patterns


def test_returns_equal_a_table_worked_by_hand() -> None:
    """n = 2, gamma 1/2, q = 8 everywhere, rewards of 1, 2, 4, ... for actions 0, 1, 2, ...

    rows   F    N    E      F    L     N    U      F    N
    r           1    2      -    8     16   32     -    128
    G_0 = 1 + 2/2 = 2             terminated: no bootstrap
    G_1 = 2                       likewise
    G_3 = 8                       a lost life ends the return,
    G_4 = 16 + 32/2 + 8/4 = 34    and the game goes on
    G_5 = 32 + 8/2 = 36           truncated: its own q
    G_7 = 128 + 8/2 = 132         the window ends: its last q
    """
    pattern = "FNEFLNUFN"
    rewards = torch.tensor([0.0, 1, 2, 4, 8, 16, 32, 64, 128]).unsqueeze(1)
    terminated = flags([pattern], "LE")[1:]
    returns = n_step_returns(
        rewards=rewards[1:],
        discounts=0.5 * (~terminated).float(),
        mask=~flags([pattern], "F")[1:],
        bootstrap_values=torch.full((9, 1), 8.0),
        n_step=2,
    )
    valid = [0, 1, 3, 4, 5, 7]
    assert returns.flatten()[valid].tolist() == [2.0, 2.0, 8.0, 34.0, 36.0, 132.0]


def test_nothing_of_the_next_episode_leaks_across_an_end() -> None:
    """Rewards and values behind an episode's last row may even be NaN."""
    patterns = ["NNEFNN", "NNUFNN"]
    rewards, q_values = random_inputs(patterns)
    expected = solve(patterns, rewards, q_values, 5)
    rewards[3:], q_values[3:] = torch.nan, torch.nan
    assert torch.equal(solve(patterns, rewards, q_values, 5)[:3], expected[:3])


def test_returns_carry_no_gradient_when_inputs_do() -> None:
    """The loss treats its targets as constants."""
    patterns = ["NNNNNN"]
    rewards, q_values = random_inputs(patterns)
    returns = solve(patterns, rewards.requires_grad_(), q_values.requires_grad_(), 3)
    assert not returns.requires_grad
