"""RMSProp as TensorFlow defines it, for recipes published with its epsilon.

A torch optimiser: the trainer thread steps it. Which definition a run uses, and its
learning-rate schedule, is decided in `optimizers`.
"""

# torch does not list its foreach operations as exported, though its own optimisers
# are built on them.
# pyright: reportPrivateImportUsage=false

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class RMSpropTF(torch.optim.Optimizer):
    """RMSProp (Tieleman & Hinton 2012) as `tf.compat.v1.train.RMSPropOptimizer`.

        ms  <- alpha ms + (1 - alpha) g^2,    ms_0 = 1
        mom <- momentum mom + lr g / sqrt(ms + eps),    mom_0 = 0
        p   <- p - mom

    Differs from `torch.optim.RMSprop` in three ways: eps is inside the root, the
    accumulator starts from 1 (small first steps), and the learning rate is inside the
    momentum, so a change of it acts gradually.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        alpha: float = 0.99,
        eps: float = 1e-10,
        momentum: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "alpha": alpha, "eps": eps, "momentum": momentum}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]  # torch overloads it
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Applies one update to every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:  # the foreach operations refuse empty lists
                self._update(group, params)
        return loss

    def _update(self, group: dict[str, Any], params: list[Tensor]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        states = [self._state_of(p, group["momentum"]) for p in params]
        mean_squares = [state["mean_square"] for state in states]

        torch._foreach_mul_(mean_squares, group["alpha"])
        torch._foreach_addcmul_(mean_squares, grads, grads, value=1 - group["alpha"])
        roots = torch._foreach_add(mean_squares, group["eps"])
        torch._foreach_sqrt_(roots)

        if group["momentum"] == 0:
            torch._foreach_addcdiv_(params, grads, roots, value=-group["lr"])
            return
        momenta = [state["momentum"] for state in states]
        torch._foreach_mul_(momenta, group["momentum"])
        torch._foreach_addcdiv_(momenta, grads, roots, value=group["lr"])
        torch._foreach_sub_(params, momenta)

    def _state_of(self, param: Tensor, momentum: float) -> dict[str, Tensor]:
        state = self.state[param]
        if not state:
            state["mean_square"] = torch.ones_like(param)
            if momentum > 0:
                state["momentum"] = torch.zeros_like(param)
        return state
