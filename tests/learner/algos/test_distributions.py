"""The categorical distribution: densities, exact sampling, masked actions."""

import math

import pytest
import torch
from torch import Tensor

from learner.algos import distributions

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_CUDA])]

# Chi-square values exceeded once in 10,000 tries, by degrees of freedom.
CHI_SQUARE_LIMIT = {4: 23.51, 5: 25.74, 8: 31.83}


def random_logits(*shape: int, rng_seed: int = 0) -> Tensor:
    """Returns float64 logits with a spread of several nats."""
    generator = torch.Generator().manual_seed(rng_seed)
    return 2 * torch.randn(*shape, generator=generator, dtype=torch.float64)


def chi_square(counts: Tensor, probs: Tensor) -> float:
    """Returns Pearson's statistic of `counts` against `probs`, both [K]."""
    expected = probs * counts.sum()
    return ((counts - expected).square() / expected).sum().item()


def test_log_prob_equals_the_log_of_the_softmax() -> None:
    """The log probability is log(exp(x_a) / sum exp(x)), action by action."""
    logits = random_logits(2, 3, 4)
    actions = torch.tensor([[0, 1, 2], [3, 2, 1]])
    got = distributions.log_prob(logits, actions)
    for t in range(2):
        for b in range(3):
            weights = [math.exp(x) for x in logits[t, b].tolist()]
            expected = math.log(weights[int(actions[t, b])] / sum(weights))
            assert got[t, b].item() == pytest.approx(expected)


def test_entropy_equals_the_literal_sum() -> None:
    """The entropy is -sum p log p, and log A for equal logits."""
    logits = random_logits(3, 4)
    for row, got in zip(logits.tolist(), distributions.entropy(logits).tolist(), strict=True):
        weights = [math.exp(x) for x in row]
        probs = [w / sum(weights) for w in weights]
        assert got == pytest.approx(-sum(p * math.log(p) for p in probs))
    assert distributions.entropy(torch.zeros(7)).item() == pytest.approx(math.log(7))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("infinite", [False, True])
def test_masked_logits_keep_entropy_and_gradient_finite(dtype: torch.dtype, infinite: bool) -> None:
    """Masked logits are the dtype's minimum or -inf, and masked actions count for nothing."""
    masked = -math.inf if infinite else torch.finfo(dtype).min
    logits = torch.tensor([masked, 40.0, masked, 40.0], dtype=dtype, requires_grad=True)
    entropy = distributions.entropy(logits)
    assert entropy.item() == pytest.approx(math.log(2), rel=1e-2)
    entropy.backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_samples_follow_the_softmax_in_each_row(device: str) -> None:
    """The chi-square test uses 100,000 draws from three rows of different shape."""
    logits = random_logits(3, 6).float().to(device)
    generator = torch.Generator(device).manual_seed(1)
    actions = distributions.sample(logits.expand(100_000, 3, 6), generator)
    assert actions.dtype == torch.int64
    assert actions.shape == (100_000, 3)
    for row in range(3):
        counts = torch.bincount(actions[:, row], minlength=6)
        statistic = chi_square(counts, torch.softmax(logits[row].double(), -1))
        assert statistic < CHI_SQUARE_LIMIT[5]


@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_a_batch_are_drawn_independently(device: str) -> None:
    """The chi-square test uses the joint counts of two neighbouring rows."""
    logits = random_logits(3, rng_seed=3).to(device)
    generator = torch.Generator(device).manual_seed(2)
    first, second = distributions.sample(logits.expand(100_000, 2, 3), generator).unbind(-1)
    probs = torch.softmax(logits, -1)
    counts = torch.bincount(3 * first + second, minlength=9)
    assert chi_square(counts, torch.outer(probs, probs).flatten()) < CHI_SQUARE_LIMIT[8]


def test_sampling_repeats_with_the_generator_and_moves_on_with_it() -> None:
    """The same generator state gives the same actions; the next call gives others."""
    logits = torch.zeros(64, 5)
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    first, second = distributions.sample(logits, generator), distributions.sample(logits, generator)
    assert torch.equal(first, distributions.sample(logits, generator.set_state(state)))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("draw", [0.0, 1.0 - 2.0**-53])
def test_masked_actions_are_never_drawn_at_either_end_of_the_draws(
    draw: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest and largest uniform number still pick the only allowed actions."""
    masked = torch.finfo(torch.float32).min
    rows = random_logits(500, 6).float()
    rows[:, [0, 3, 5]] = masked
    monkeypatch.setattr(
        torch, "rand", lambda shape, **kwargs: torch.full(shape, draw, dtype=torch.float64)
    )
    actions = distributions.sample(rows, torch.Generator())
    assert (actions == (1 if draw == 0 else 4)).all()


def test_rare_actions_keep_their_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    """An action of probability 2^-30, far below the steps of float32 draws, owns just
    that share of the unit interval."""
    logits = torch.tensor([0.0, -30 * math.log(2)])
    border = 1 / (1 + 2.0**-30)
    draws = torch.tensor([[border - 2.0**-40], [border + 2.0**-40]], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda shape, **kwargs: draws)
    assert distributions.sample(logits.expand(2, 2), torch.Generator()).tolist() == [0, 1]


def test_greedy_takes_the_likeliest_action() -> None:
    """This holds for any leading dimensions."""
    logits = torch.tensor([[[0.0, 2.0, 1.0]], [[3.0, 2.0, 1.0]]])
    assert distributions.greedy(logits).tolist() == [[1], [0]]


def test_float32_agrees_with_float64() -> None:
    """Training precision changes neither density noticeably."""
    logits, actions = random_logits(20, 6), torch.arange(20) % 6
    for got, expected in (
        (distributions.entropy(logits.float()), distributions.entropy(logits)),
        (distributions.log_prob(logits.float(), actions), distributions.log_prob(logits, actions)),
    ):
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)
