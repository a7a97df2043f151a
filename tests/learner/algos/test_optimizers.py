"""Each optimiser by name against its closed form, and the learning-rate schedule."""

import io
import math
from typing import Literal

import pytest
import torch
from torch import Tensor

from learner.algos.optimizers import learning_rate_at, make_optimizer
from learner.algos.rmsprop import RMSpropTF
from learner.config.run_config import OptimizerConfig

Name = Literal["rmsprop", "rmsprop_tf", "adam"]

LR, DECAY, MOMENTUM, EPS = 0.1, 0.9, 0.5, 0.01
GRADS = (2.0, -3.0)


def config_of(name: Name, momentum: float = MOMENTUM) -> OptimizerConfig:
    """Returns a config in which all numbers differ from each other and from the defaults."""
    return OptimizerConfig(
        optimizer=name, learning_rate=LR, optimizer_decay=DECAY, momentum=momentum, epsilon=EPS
    )


def parameter() -> Tensor:
    """Returns one float64 number, 1, that requires a gradient."""
    return torch.ones(1, dtype=torch.float64, requires_grad=True)


def apply(optimizer: torch.optim.Optimizer, param: Tensor, grad: float) -> float:
    """Steps once with `grad` and returns the parameter."""
    param.grad = torch.full_like(param, grad)
    optimizer.step()
    return param.item()


def test_rmsprop_torch_equals_closed_form_in_steps_one_and_two() -> None:
    """Epsilon is outside the root, the accumulator starts at 0, the rate is outside momentum."""
    param = parameter()
    optimizer = make_optimizer([param], config_of("rmsprop"))
    g1, g2 = GRADS

    square_1 = (1 - DECAY) * g1**2
    momentum_1 = g1 / (math.sqrt(square_1) + EPS)
    expected_1 = 1 - LR * momentum_1
    assert apply(optimizer, param, g1) == pytest.approx(expected_1, rel=1e-12)

    square_2 = DECAY * square_1 + (1 - DECAY) * g2**2
    momentum_2 = MOMENTUM * momentum_1 + g2 / (math.sqrt(square_2) + EPS)
    assert apply(optimizer, param, g2) == pytest.approx(expected_1 - LR * momentum_2, rel=1e-12)


def test_rmsprop_tf_equals_closed_form_in_steps_one_and_two() -> None:
    """Epsilon is inside the root, the accumulator starts at 1, the rate is inside momentum."""
    param = parameter()
    optimizer = make_optimizer([param], config_of("rmsprop_tf"))
    g1, g2 = GRADS

    square_1 = DECAY * 1 + (1 - DECAY) * g1**2
    momentum_1 = LR * g1 / math.sqrt(square_1 + EPS)
    expected_1 = 1 - momentum_1
    assert apply(optimizer, param, g1) == pytest.approx(expected_1, rel=1e-12)

    # Halved between the steps; the momentum keeps what was added at the old rate.
    optimizer.param_groups[0]["lr"] = LR / 2
    square_2 = DECAY * square_1 + (1 - DECAY) * g2**2
    momentum_2 = MOMENTUM * momentum_1 + LR / 2 * g2 / math.sqrt(square_2 + EPS)
    assert apply(optimizer, param, g2) == pytest.approx(expected_1 - momentum_2, rel=1e-12)


def test_rmsprop_tf_without_momentum_equals_closed_form() -> None:
    """The path that keeps no momentum buffer takes the same steps."""
    param = parameter()
    optimizer = make_optimizer([param], config_of("rmsprop_tf", momentum=0.0))
    g1, g2 = GRADS
    square_1 = DECAY + (1 - DECAY) * g1**2
    square_2 = DECAY * square_1 + (1 - DECAY) * g2**2
    expected_1 = 1 - LR * g1 / math.sqrt(square_1 + EPS)
    expected_2 = expected_1 - LR * g2 / math.sqrt(square_2 + EPS)
    assert apply(optimizer, param, g1) == pytest.approx(expected_1, rel=1e-12)
    assert apply(optimizer, param, g2) == pytest.approx(expected_2, rel=1e-12)
    assert set(optimizer.state[param]) == {"mean_square"}


def test_adam_equals_closed_form_in_steps_one_and_two() -> None:
    """Momentum is beta 1 and decay is beta 2; epsilon is outside the corrected root."""
    param = parameter()
    optimizer = make_optimizer([param], config_of("adam"))
    g1, g2 = GRADS

    expected_1 = 1 - LR * g1 / (abs(g1) + EPS)  # Both corrections cancel in step 1.
    assert apply(optimizer, param, g1) == pytest.approx(expected_1, rel=1e-12)

    mean = MOMENTUM * (1 - MOMENTUM) * g1 + (1 - MOMENTUM) * g2
    square = DECAY * (1 - DECAY) * g1**2 + (1 - DECAY) * g2**2
    root = math.sqrt(square / (1 - DECAY**2)) + EPS
    expected_2 = expected_1 - LR * mean / (1 - MOMENTUM**2) / root
    assert apply(optimizer, param, g2) == pytest.approx(expected_2, rel=1e-12)


@pytest.mark.parametrize("name", ["rmsprop", "rmsprop_tf", "adam"])
def test_many_parameters_step_as_each_would_alone(name: Name) -> None:
    """The fused operations keep the parameters apart."""
    together = [parameter() for _ in range(3)]
    fused = make_optimizer(together, config_of(name))
    for step in range(3):
        for index, param in enumerate(together):
            param.grad = torch.full_like(param, float(step - index))
        fused.step()
    for index, param in enumerate(together):
        alone = parameter()
        optimizer = make_optimizer([alone], config_of(name))
        for step in range(3):
            apply(optimizer, alone, float(step - index))
        assert torch.equal(alone, param)


@pytest.mark.parametrize("name", ["rmsprop", "rmsprop_tf", "adam"])
def test_resumed_optimizer_takes_the_same_next_step(name: Name) -> None:
    """State and learning rate survive a file without code, bit for bit."""
    param = parameter()
    optimizer = make_optimizer([param], config_of(name))
    for grad in GRADS:
        apply(optimizer, param, grad)
    optimizer.param_groups[0]["lr"] = LR / 4
    stored = io.BytesIO()
    torch.save(optimizer.state_dict(), stored)
    stored.seek(0)

    resumed_param = param.detach().clone().requires_grad_()
    resumed = make_optimizer([resumed_param], config_of(name))
    resumed.load_state_dict(torch.load(stored, weights_only=True))
    assert apply(resumed, resumed_param, 1.5) == apply(optimizer, param, 1.5)


def test_parameters_without_gradient_stay_as_they_are() -> None:
    """An unused head neither moves nor gets state, and no gradient at all is no error."""
    used, unused = parameter(), parameter()
    optimizer = RMSpropTF([used, unused], lr=LR, momentum=MOMENTUM)
    optimizer.step()
    apply(optimizer, used, 1.0)
    assert used.item() != 1.0
    assert unused.item() == 1.0
    assert unused not in optimizer.state


def test_rmsprop_tf_steps_each_group_at_its_own_rate() -> None:
    """The options of a group reach only its own parameters."""
    slow, fast = parameter(), parameter()
    optimizer = RMSpropTF([{"params": [slow], "lr": 0.1}, {"params": [fast]}], lr=0.4)
    slow.grad = fast.grad = torch.ones(1, dtype=torch.float64)
    optimizer.step()
    assert (1 - fast.item()) == pytest.approx(4 * (1 - slow.item()))


def test_rmsprop_tf_returns_the_loss_of_its_closure() -> None:
    """The closure runs with gradients on, as in every torch optimiser."""
    param = parameter()
    optimizer = RMSpropTF([param], lr=LR)

    def closure() -> float:
        loss = (3 * param).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 3.0
    assert param.item() < 1.0


def test_rmsprop_tf_in_float32_agrees_with_float64() -> None:
    """Training precision takes the same path."""
    finals = []
    for dtype in (torch.float32, torch.float64):
        param = torch.ones(4, dtype=dtype, requires_grad=True)
        optimizer = RMSpropTF([param], lr=LR, momentum=MOMENTUM)
        for step in range(50):
            param.grad = torch.tensor([0.1, -1.0, 3.0, step / 10], dtype=dtype)
            optimizer.step()
        finals.append(param.detach().double())
    torch.testing.assert_close(finals[0], finals[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("progress", "linear"), [(0.0, 0.8), (0.25, 0.6), (0.5, 0.4), (1.0, 0.0), (1.01, 0.0)]
)
def test_learning_rate_decays_to_zero_only_when_linear(progress: float, linear: float) -> None:
    """A batch that overshoots the budget never makes the rate negative."""
    decaying = OptimizerConfig(learning_rate=0.8, learning_rate_schedule="linear")
    constant = OptimizerConfig(learning_rate=0.8, learning_rate_schedule="constant")
    assert learning_rate_at(decaying, progress) == pytest.approx(linear)
    assert learning_rate_at(constant, progress) == 0.8
