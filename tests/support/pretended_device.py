"""A pretended GPU: its tensors say that they are on a device, and hold their numbers on the CPU.

The code of the learner then takes the branches of a GPU on a machine that has none. Every
operation checks its devices as a GPU's kernels do, and is tallied: how many kernels the host
launches, what it uploads, and where it has to wait for the device. Numbers are those of the CPU.

It cannot show what only a GPU has: streams that run side by side, captured graphs, cuDNN, NCCL,
autocast and speed.

PyTorch calls a device of a third party "PrivateUse1". Memory for it is made by the kernels that
this module registers, on any thread. All other operations come to `__torch_dispatch__`.
"""

import collections
import contextlib
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_NAME = "pretend"
_LEARNER = str(Path(__file__).parent.parent.parent / "learner")

# Operations that return another view of the same memory, or only look at its shape.
_VIEWS = {
    *("view", "_unsafe_view", "view_as", "_reshape_alias", "as_strided", "alias", "detach"),
    *("slice", "select", "narrow", "unbind", "chunk", "split", "split_with_sizes", "diagonal"),
    *("unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "movedim", "unfold"),
    *("lift_fresh", "is_same_size", "set_", "empty_like", "new_empty"),
}
# Operations whose result has a shape or a value that the host must know.
_WAITING = {
    *("_local_scalar_dense", "is_nonzero", "equal"),
    *("nonzero", "masked_select", "_unique2", "unique_dim"),
}
# Operations that take an index or a source on another device.
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
_MIXING = {"copy_", "_to_copy", "set_", *_INDEXING}


class WrongDeviceError(RuntimeError):
    """One operation got tensors of the device and of the CPU."""


class Tally:
    """What the host asked of the device, over all threads, by operation or by place."""

    def __init__(self) -> None:
        self.launches: collections.Counter[str] = collections.Counter()
        """Kernels, by the operation's name. A foreach operation is one."""
        self.uploads: collections.Counter[str] = collections.Counter()
        """Copies from the host, by place in the learner; they are launches, too."""
        self.waits: collections.Counter[str] = collections.Counter()
        """Where the host waits for the device, by operation and place in the learner."""

    @property
    def num_launches(self) -> int:
        return self.launches.total()

    @property
    def num_uploads(self) -> int:
        return self.uploads.total()

    @property
    def num_waits(self) -> int:
        return self.waits.total()


_tallies: list[Tally] = []
_lock = threading.Lock()


@contextlib.contextmanager
def tallied() -> Iterator[Tally]:
    """Tallies every thread's operations within the context."""
    tally = Tally()
    with _lock:
        _tallies.append(tally)
    try:
        yield tally
    finally:
        with _lock:
            _tallies.remove(tally)


class PretendedTensor(torch.Tensor):
    """A tensor of the pretended device; `host` holds its numbers."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> "PretendedTensor":
        tensor = torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            host.size(),
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            layout=host.layout,
            device=DEVICE,
        )
        tensor.host = host
        return tensor

    __torch_function__ = torch._C._disabled_torch_function_impl  # pyright: ignore

    is_cuda = property(lambda _: True)  # pyright: ignore[reportAssignmentType]

    @property
    def data(self) -> Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        return torch.Tensor.data.__get__(self)  # pyright: ignore

    @data.setter
    def data(self, value: "PretendedTensor") -> None:
        """As modules change a parameter's memory layout, or share it: the numbers go along."""
        torch.Tensor.data.__set__(self, value)  # pyright: ignore
        self.host = value.host

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise TypeError("can't convert a tensor of a device to numpy; use Tensor.cpu() first")

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"PretendedTensor({self.host})"

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs an operation on the numbers; returns its results on the device, unless it leaves it."""
    name = func._schema.name.removeprefix("aten::")
    _check_devices(name, pytree.tree_leaves((args, kwargs)))
    _count(name, args, kwargs)
    out = func(*pytree.tree_map(_on_host, args), **_host_kwargs(kwargs))
    leaves_device = kwargs.get("device") is not None and _is_host(kwargs["device"])
    if name == "_local_scalar_dense" or leaves_device:
        return out
    if name == "copy_" and not isinstance(args[0], PretendedTensor):
        return args[0]
    with torch.inference_mode(torch.is_inference_mode_enabled() and not _views_normal(name, args)):
        wrapped = pytree.tree_map(_on_device, out)
    if torch.is_inference_mode_enabled():
        # PyTorch counts no versions there. A view shares the numbers of its base all the same.
        is_changed = func._schema.is_mutable and wrapped is not None
        return kwargs.get("out", args[0]) if is_changed else wrapped
    if func._schema.is_mutable or any(result.alias_info for result in func._schema.returns):
        return return_and_correct_aliasing(func, args, kwargs, wrapped)
    return wrapped


def _views_normal(name: str, args: Sequence[Any]) -> bool:
    """Tells whether the result is a view of a tensor made outside inference mode: it is, too."""
    return name in _VIEWS and isinstance(args[0], Tensor) and not args[0].is_inference()


def _host_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    there = pytree.tree_map(_on_host, kwargs)
    there.pop("pin_memory", None)
    return there | ({"device": torch.device("cpu")} if there.get("device") is not None else {})


def _on_host(x: Any) -> Any:
    return x.host if isinstance(x, PretendedTensor) else x


def _on_device(x: Any) -> Any:
    is_plain = isinstance(x, Tensor) and not isinstance(x, PretendedTensor)
    return PretendedTensor(x) if is_plain else x


def _is_host(device: Any) -> bool:
    return torch.device(device).type == "cpu"


def _check_devices(name: str, operands: list[Any]) -> None:
    """Raises WrongDeviceError for a tensor of the CPU; a scalar is passed to a kernel by value."""
    if name in _MIXING:
        return
    for x in operands:
        if isinstance(x, Tensor) and not isinstance(x, PretendedTensor) and x.dim():
            where = _place()
            raise WrongDeviceError(
                f"{name}: a CPU tensor {tuple(x.shape)} beside {DEVICE}, {where}"
            )


def _count(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    if name in _VIEWS or not _tallies:
        return
    uploads, waits, place = _uploads(name, args), _waits(name, args, kwargs), _place()
    with _lock:
        for tally in _tallies:
            tally.launches[name] += 1
            if uploads:
                tally.uploads[place] += 1
            if waits:
                tally.waits[f"{name}, {place}"] += 1


def _uploads(name: str, args: Sequence[Any]) -> bool:
    return name == "copy_" and not isinstance(args[1], PretendedTensor)


def _waits(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if name in _INDEXING:
        # The number of rows that a mask chooses is found on the device.
        indices = [x for x in args[1] if isinstance(x, Tensor)]
        return any(x.dtype in (torch.bool, torch.uint8) for x in indices)
    if name == "_to_copy":
        # Without pinned memory on the host's side, even a copy that need not block does.
        return kwargs.get("device") is not None and _is_host(kwargs["device"])
    if name == "copy_":
        to_host = not isinstance(args[0], PretendedTensor)
        may_go_on = kwargs.get("non_blocking") or (len(args) > 2 and args[2])
        return to_host or (_uploads(name, args) and not may_go_on)
    return name in _WAITING


def _place() -> str:
    """Returns file, line and function of the innermost caller in the learner's package."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(_LEARNER):
        frame = frame.f_back
    if frame is None:
        return "outside the learner"
    path = Path(frame.f_code.co_filename).relative_to(_LEARNER)
    return f"{path}:{frame.f_lineno} {frame.f_code.co_name}"


class PretendedGenerator(torch.Generator):
    """A generator of the CPU that says that it is of the device."""

    @property
    def device(self) -> torch.device:  # pyright: ignore[reportIncompatibleVariableOverride]
        return DEVICE


def make_generator(device: torch.device | str = "cpu") -> torch.Generator:
    """Stands in for `torch.Generator`, which takes a device of its own build only."""
    is_pretended = torch.device(device).type == _NAME
    return PretendedGenerator() if is_pretended else _Generator(device)


_Generator = torch.Generator


class _Backend:
    """The module `torch.pretend`, by which PyTorch asks about the device."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: Any) -> None:
        pass

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]

    def _is_in_bad_fork(self) -> bool:
        return False

    def _lazy_init(self) -> None:
        pass


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> PretendedTensor:
    return PretendedTensor(torch.empty(size, dtype=dtype))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> PretendedTensor:
    return PretendedTensor(torch.empty_strided(size, stride, dtype=dtype))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """Copies for `torch.tensor(..., device=...)`, where PyTorch calls no `__torch_dispatch__`."""
    _count("copy_", (target, source, non_blocking), {})
    _on_host(target).copy_(_on_host(source))
    return target


class _Lstm(torch.autograd.Function):
    """The LSTM over all rows as one operation each way, as cuDNN has it."""

    @staticmethod
    def forward(ctx: Any, flags: tuple[Any, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        _count("lstm", tensors, {})
        hosts = [_on_host(x).detach().requires_grad_() for x in tensors]
        with torch.enable_grad():
            outputs = _host_lstm(hosts, flags)
        ctx.hosts, ctx.outputs = hosts, outputs
        return tuple(PretendedTensor(x.detach()) for x in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        _count("lstm_backward", gradients, {})
        grads = torch.autograd.grad(ctx.outputs, ctx.hosts, [_on_host(x) for x in gradients])
        return (None, *map(PretendedTensor, grads))


def _host_lstm(tensors: Sequence[Tensor], flags: tuple[Any, ...]) -> tuple[Tensor, ...]:
    inputs, hidden, cell, *params = tensors
    return torch.lstm(inputs, (hidden, cell), params, *flags)


def _lstm(inputs: Tensor, state: list[Tensor], params: list[Tensor], *flags: Any) -> Any:
    return _Lstm.apply(flags, inputs, *state, *params)


def _register() -> torch.library.Library:
    """Makes the device known to PyTorch, once in a process; the kernels live with the result."""
    _setup_privateuseone_for_python_backend(rename=_NAME, backend_module=_Backend())
    kernels = torch.library.Library("aten", "IMPL")
    kernels.impl("empty.memory_format", _empty, "PrivateUse1")
    kernels.impl("empty_strided", _empty_strided, "PrivateUse1")
    kernels.impl("_copy_from", _copy_from, "PrivateUse1")
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        kernels.impl("lstm.input", _lstm, key)
    return kernels


_KERNELS = _register()

DEVICE = torch.device(_NAME, 0)
"""The pretended GPU."""
