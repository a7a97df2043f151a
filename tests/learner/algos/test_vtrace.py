"""V-trace against the paper's sum, tables worked by hand, and identities."""

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from learner.algos.vtrace import VTraceReturns, vtrace

DISCOUNT_FACTOR = 0.9


class Case(NamedTuple):
    """Inputs of `vtrace` under its own argument names."""

    behaviour_log_probs: Tensor
    target_log_probs: Tensor
    rewards: Tensor
    discounts: Tensor
    mask: Tensor
    values: Tensor
    rho_max: float = 1.0
    c_max: float = 1.0
    pg_rho_max: float = 1.0
    trace_lambda: float = 1.0

    def solve(self) -> VTraceReturns:
        """Returns the result of `vtrace` for this case."""
        return vtrace(**self._asdict())


# Three different clips, each with importance weights on both sides, and a lambda.
CLIPS = {"rho_max": 1.2, "c_max": 0.9, "pg_rho_max": 1.5, "trace_lambda": 0.8}


def random_flags(
    num_rows: int, batch: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns is_first, terminated, truncated, bool [num_rows, batch], as recorded.

    Episodes end either way, often on neighbouring rows. After an end comes a reset,
    or, one time in four, the game just goes on (a lost life marked as terminated).
    """
    draws = torch.rand(num_rows, batch, 2, generator=generator)
    is_first, terminated, truncated = torch.zeros(3, num_rows, batch, dtype=torch.bool)
    for b in range(batch):
        resets = bool(draws[0, b, 1] < 0.5)
        for t in range(num_rows):
            end, going_on = draws[t, b].tolist()
            is_first[t, b] = resets
            terminated[t, b] = not resets and end < 0.2
            truncated[t, b] = not resets and end > 0.8
            resets = bool(truncated[t, b] or (terminated[t, b] and going_on > 0.25))
    return is_first, terminated, truncated


def random_case(rng_seed: int, batch: int, steps: int = 12, *, on_policy: bool = False) -> Case:
    """Returns a float64 case with episode ends in the pattern of the record layout.

    On-policy, all clips and lambda are 1; else CLIPS.
    """
    generator = torch.Generator().manual_seed(rng_seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    is_first, terminated, _ = random_flags(steps + 1, batch, generator)
    behaviour = -normal(steps, batch).abs()
    return Case(
        behaviour_log_probs=behaviour,
        target_log_probs=behaviour if on_policy else behaviour + normal(steps, batch),
        rewards=normal(steps, batch),
        discounts=DISCOUNT_FACTOR * (~terminated[1:]).double(),
        mask=(~is_first[1:]).double(),
        values=normal(steps + 1, batch),
        **({} if on_policy else CLIPS),
    )


def episode_case(*, terminated: bool) -> Case:
    """Returns four rows, on-policy: an episode that ends at row 1, then the next one.

    row         0     1 (last)   2 (first)   3
    V           1     2          4           8
    R_t         1     ignored    1/2
    """
    return Case(
        behaviour_log_probs=torch.zeros(3, 1),
        target_log_probs=torch.zeros(3, 1),
        rewards=torch.tensor([[1.0], [0.0], [0.5]]),
        discounts=torch.tensor([[0.0 if terminated else 0.5], [0.5], [0.5]]),
        mask=torch.tensor([[1.0], [0.0], [1.0]]),
        values=torch.tensor([[1.0], [2.0], [4.0], [8.0]]),
    )


def tensors_of(case: Case) -> dict[str, Tensor]:
    """Returns the tensor fields of `case` by name."""
    return {name: x for name, x in case._asdict().items() if isinstance(x, Tensor)}


def literal_vtrace(case: Case) -> tuple[list[list[float]], list[list[float]]]:
    """Returns value targets and advantages [T][B] by the paper's sum, in plain Python.

    v_s = V_s + sum_{t>=s} (prod_{i=s..t-1} gamma_{i+1} c_i) delta_t, the sum ending
    where the episode or the unroll does.
    """
    rewards, discounts, values = (x.tolist() for x in (case.rewards, case.discounts, case.values))
    exists = case.mask.bool().tolist()
    rhos = (case.target_log_probs - case.behaviour_log_probs).exp().tolist()
    steps, batch = case.rewards.shape

    def value_target(s: int, b: int) -> float:
        target = values[s][b]
        for t in range(s, steps):
            if not exists[t][b]:
                break
            weight = 1.0
            for i in range(s, t):
                weight *= discounts[i][b] * case.trace_lambda * min(case.c_max, rhos[i][b])
            error = rewards[t][b] + discounts[t][b] * values[t + 1][b] - values[t][b]
            target += weight * min(case.rho_max, rhos[t][b]) * error
        return target

    def advantage(s: int, b: int) -> float:
        if not exists[s][b]:
            return 0.0
        bootstrap = discounts[s][b] * value_target(s + 1, b)
        weight = min(case.pg_rho_max, rhos[s][b])
        return weight * (rewards[s][b] + bootstrap - values[s][b])

    targets = [[value_target(s, b) for b in range(batch)] for s in range(steps)]
    advantages = [[advantage(s, b) for b in range(batch)] for s in range(steps)]
    return targets, advantages


def literal_n_step_return(case: Case, s: int, b: int) -> float:
    """Returns sum_k gamma^k R_{s+k}, bootstrapped where the episode or unroll ends."""
    total, weight, t = 0.0, 1.0, s
    while t < case.rewards.shape[0] and case.mask[t, b]:
        total += weight * case.rewards[t, b].item()
        weight *= case.discounts[t, b].item()
        t += 1
    return total + weight * case.values[t, b].item()


def last_rows(case: Case) -> list[tuple[int, int]]:
    """Returns (t, b) of every row that ends an episode and has a row before it in it."""
    return [(t, b) for t, b in (case.mask == 0).nonzero().tolist() if t > 0 and case.mask[t - 1, b]]


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("rng_seed", range(5))
def test_vtrace_equals_the_literal_sum_with_random_episode_ends(rng_seed: int, batch: int) -> None:
    """The recurrence computes the paper's double sum, and the advantages."""
    case = random_case(rng_seed, batch)
    returns = case.solve()
    targets, advantages = literal_vtrace(case)
    for got, expected in ((returns.value_targets, targets), (returns.advantages, advantages)):
        twin = torch.tensor(expected, dtype=torch.float64)
        torch.testing.assert_close(got, twin, rtol=1e-12, atol=1e-12)


def test_random_cases_cover_both_kinds_of_end_and_both_sides_of_each_clip() -> None:
    """The cases hold both ends, steps that go on after an end, and both sides of every clip."""
    case = random_case(0, 5)
    rhos = (case.target_log_probs - case.behaviour_log_probs).exp()
    for clip in (CLIPS["rho_max"], CLIPS["c_max"], CLIPS["pg_rho_max"]):
        assert (rhos < clip).any()
        assert (rhos > clip).any()
    ends = last_rows(case)
    assert any(case.discounts[t - 1, b] == 0 for t, b in ends)
    assert any(case.discounts[t - 1, b] > 0 for t, b in ends)
    went_on = (case.discounts[:-1] == 0) & (case.mask[:-1] == 1) & (case.mask[1:] == 1)
    assert went_on.any()


def test_vtrace_equals_a_table_worked_by_hand_when_every_clip_acts() -> None:
    """Three transitions without an end, computed on paper.

    gamma 1/2, lambda 1/2, rho_max 3/2, c_max 1, pg_rho_max 5/4; V = 1, 2, 4, 8.

    t  rho  min(3/2,rho)  lambda min(1,rho)  R    R + V'/2 - V        delta
    0  2    3/2           1/2                1    1 + 1 - 1 = 1       3/2
    1  1/2  1/2           1/4                -1   -1 + 2 - 2 = -1     -1/2
    2  1    1             1/2                1/2  1/2 + 4 - 4 = 1/2   1/2

    A_2 = 1/2                                v_2 = 4.5
    A_1 = -1/2 + 1/2 1/4 1/2 = -0.4375       v_1 = 1.5625
    A_0 = 3/2 + 1/2 1/2 (-0.4375) = 1.390625 v_0 = 2.390625

    adv_2 = 1 (1/2 + 8/2 - 4) = 0.5
    adv_1 = 1/2 (-1 + 4.5/2 - 2) = -0.375
    adv_0 = 5/4 (1 + 1.5625/2 - 1) = 0.9765625
    """
    log_rhos = torch.tensor([[2.0], [0.5], [1.0]], dtype=torch.float64).log()
    case = Case(
        behaviour_log_probs=torch.full((3, 1), -1.0, dtype=torch.float64),
        target_log_probs=log_rhos - 1.0,
        rewards=torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.float64),
        discounts=torch.full((3, 1), 0.5, dtype=torch.float64),
        mask=torch.ones(3, 1, dtype=torch.float64),
        values=torch.tensor([[1.0], [2.0], [4.0], [8.0]], dtype=torch.float64),
        rho_max=1.5,
        c_max=1.0,
        pg_rho_max=1.25,
        trace_lambda=0.5,
    )
    returns = case.solve()
    assert returns.value_targets.flatten().tolist() == pytest.approx([2.390625, 1.5625, 4.5])
    assert returns.advantages.flatten().tolist() == pytest.approx([0.9765625, -0.375, 0.5])
    torch.testing.assert_close(returns.log_rhos, log_rhos)


def test_truncated_table_bootstraps_from_the_last_row() -> None:
    """The drawing of the record, worked by hand for a truncated end.

    v_0 = 1 + 1 + 2/2 - 1 = 2    adv_0 = 1 + v_1/2 - 1 = 1      row 0 sees V_1 = 2
    v_1 = V_1 = 2                adv_1 = 0                      no such transition
    v_2 = 4 + 1/2 + 8/2 - 4      adv_2 = 1/2 + 8/2 - 4 = 1/2
    """
    returns = episode_case(terminated=False).solve()
    assert returns.value_targets.flatten().tolist() == [2.0, 2.0, 4.5]
    assert returns.advantages.flatten().tolist() == [1.0, 0.0, 0.5]


def test_terminated_table_bootstraps_from_nothing() -> None:
    """The same for a terminated end: v_0 = R_0 = 1 and adv_0 = R_0 - V_0 = 0."""
    returns = episode_case(terminated=True).solve()
    assert returns.value_targets.flatten().tolist() == [1.0, 2.0, 4.5]
    assert returns.advantages.flatten().tolist() == [0.0, 0.0, 0.5]


@pytest.mark.parametrize("batch", [1, 5])
def test_targets_are_n_step_returns_when_on_policy(batch: int) -> None:
    """With equal policies, lambda 1 and clips of 1 there is no correction."""
    case = random_case(7, batch, on_policy=True)
    returns = case.solve()
    for s, b in torch.cartesian_prod(torch.arange(12), torch.arange(batch)).tolist():
        expected = literal_n_step_return(case, s, b)
        exists = bool(case.mask[s, b])
        assert math.isclose(returns.value_targets[s, b].item(), expected, abs_tol=1e-12)
        advantage = expected - case.values[s, b].item() if exists else 0.0
        assert math.isclose(returns.advantages[s, b].item(), advantage, abs_tol=1e-12)


def test_targets_are_one_step_when_lambda_is_zero() -> None:
    """With lambda 0 every trace is cut: v_t = V_t + delta_t."""
    case = random_case(8, 5, on_policy=True)._replace(trace_lambda=0.0)
    one_step = case.rewards + case.discounts * case.values[1:]
    expected = torch.where(case.mask.bool(), one_step, case.values[:-1])
    torch.testing.assert_close(case.solve().value_targets, expected)


@pytest.mark.parametrize("rng_seed", range(3))
def test_nothing_of_the_next_episode_leaks_across_an_end(rng_seed: int) -> None:
    """Targets up to an episode's last row are the same bits for any rows behind it."""
    case = random_case(rng_seed, 5)
    returns = case.solve()
    ends = last_rows(case)
    assert ends
    for end, b in ends:
        changed = case._replace(**{name: x.clone() for name, x in tensors_of(case).items()})
        # The step out of the last row must not matter either.
        for steps in (changed.target_log_probs, changed.rewards, changed.discounts):
            steps[end:, b] += 100.0
        changed.mask[end + 1 :, b] = 1 - changed.mask[end + 1 :, b]
        changed.values[end + 1 :, b] -= 100.0
        others = changed.solve()
        rows = slice(0, end + 1)
        assert torch.equal(others.value_targets[rows, b], returns.value_targets[rows, b])
        assert torch.equal(others.advantages[rows, b], returns.advantages[rows, b])


@pytest.mark.parametrize("rng_seed", range(3))
def test_truncated_end_equals_the_end_of_an_unroll(rng_seed: int) -> None:
    """Cutting the unroll at an episode's last row changes no target before it: either
    way the value of that row is the bootstrap."""
    case = random_case(rng_seed, 5)
    returns = case.solve()
    for end, b in last_rows(case):
        cut = {
            name: x[: end + 1 if name == "values" else end, b : b + 1]
            for name, x in tensors_of(case).items()
        }
        shorter = case._replace(**cut).solve()
        torch.testing.assert_close(shorter.value_targets[:, 0], returns.value_targets[:end, b])
        torch.testing.assert_close(shorter.advantages[:, 0], returns.advantages[:end, b])


def test_final_value_counts_only_when_truncated() -> None:
    """The value of an episode's last row moves the targets before it if truncated, and
    not at all if terminated."""
    case = random_case(0, 5)
    returns = case.solve()
    for end, b in last_rows(case):
        values = case.values.clone()
        values[end, b] += 1.0
        changed = case._replace(values=values).solve()
        same = torch.equal(changed.value_targets[:end, b], returns.value_targets[:end, b])
        assert same == bool(case.discounts[end - 1, b] == 0)


def test_masked_row_keeps_its_value_and_has_no_advantage() -> None:
    """A row that no transition leaves has no correction, at any ratio."""
    case = random_case(1, 5)
    returns = case._replace(target_log_probs=case.target_log_probs + 800.0).solve()
    masked = case.mask == 0
    assert masked.any()
    assert torch.equal(returns.value_targets[masked], case.values[:-1][masked])
    assert (returns.advantages[masked] == 0).all()
    assert returns.value_targets.isfinite().all()


def test_boolean_mask_equals_float_mask() -> None:
    """A mask may be bool or float."""
    case = random_case(2, 5)
    for got, expected in zip(
        case._replace(mask=case.mask.bool()).solve(), case.solve(), strict=True
    ):
        assert torch.equal(got, expected)


def test_single_transition_unroll_is_one_step() -> None:
    """T of 1 is the shortest unroll there is."""
    case = random_case(3, 5, steps=1, on_policy=True)
    one_step = case.rewards + case.discounts * case.values[1:] - case.values[:1]
    torch.testing.assert_close(case.solve().advantages, case.mask * one_step)


def test_outputs_carry_no_gradient_when_inputs_do() -> None:
    """The losses treat their targets as constants."""
    case = random_case(4, 5)
    leaves = (case.behaviour_log_probs, case.target_log_probs, case.values)
    for leaf in leaves:
        leaf.requires_grad_()
    assert not any(output.requires_grad for output in case.solve())


def test_float32_agrees_with_float64() -> None:
    """Training precision loses no digits that matter over a long unroll."""
    case = random_case(5, 5, steps=100)
    single = case._replace(**{name: x.float() for name, x in tensors_of(case).items()})
    for got, expected in zip(single.solve(), case.solve(), strict=True):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
