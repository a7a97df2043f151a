"""Makes the inputs of the learner's tests: specs, random rows and unrolls, requests.

Everything random comes from a generator that the test seeds.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from learner.acting.batcher import Request
from learner.config.run_config import NetworkConfig
from learner.records import Rows, State, Steps, Unrolls, tensors_of
from seed.specs import ArraySpec, EnvSpec
from seed.wire import EnvOutputs

Result = TypeVar("Result")
Network = TypeVar("Network", bound=nn.Module)

NUM_ACTIONS = 4

# A wait takes this long only in a hang, and then fails its test.
TIMEOUT_S = 60.0

SCREEN = ArraySpec(name="screen", dtype="uint8", shape=(5, 6), minimum=0, maximum=255)
SPEED = ArraySpec(name="body/speed", dtype="float32", shape=(3,))
GEAR = ArraySpec(name="body/gear", dtype="int64", num_values=5)

# The plainest network, and one with every option around its torso.
NETWORKS = {
    "mlp": NetworkConfig(hidden_sizes=(16,)),
    "everything": NetworkConfig(
        torso="small_conv", hidden_sizes=(8,), lstm_size=6, frame_stack=3, see_last_step=True
    ),
}


def env_spec(*leaves: ArraySpec, num_actions: int = NUM_ACTIONS) -> EnvSpec:
    """Returns a spec of `leaves`, or of one small vector, with a discrete action."""
    vector = ArraySpec(name="observation", dtype="float32", shape=(3,))
    action = ArraySpec(name="action", dtype="int64", num_values=num_actions)
    return EnvSpec(observations=leaves or (vector,), action=action)


def seeded(number: int = 0) -> torch.Generator:
    """Returns a generator that gives the same numbers each time."""
    return torch.Generator().manual_seed(number)


@torch.no_grad()
def with_random_weights(network: Network, rng_seed: int = 0) -> Network:
    """Returns `network` with random weights, so that its answers differ from row to row.

    A fresh network has a nearly uniform policy for any input, which would hide most faults
    that the tests look for. Scalars are no weights, and keep their value.
    """
    generator = seeded(rng_seed)
    for parameter in filter(lambda p: p.ndim, network.parameters()):
        fan_in = parameter[0].numel() if parameter.ndim > 1 else 4
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * (2 / fan_in) ** 0.5)
    return network


def random_leaf(leaf: ArraySpec, leading: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Returns a tensor [*leading, *leaf.shape] of values that the leaf may hold."""
    shape, dtype = (*leading, *leaf.shape), getattr(torch, leaf.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    high = leaf.num_values or {"bool": 2, "uint8": 256}.get(leaf.dtype, 100)
    return torch.randint(high, shape, generator=generator).to(dtype)


def random_flags(
    leading: tuple[int, ...], generator: torch.Generator, probability: float = 0.3
) -> Tensor:
    """Returns a bool tensor that is true with `probability`."""
    return torch.rand(leading, generator=generator) < probability


def random_rows(
    spec: EnvSpec,
    num_rows: int,
    batch_size: int,
    generator: torch.Generator,
    *,
    is_first: Tensor | None = None,
) -> Rows:
    """Returns rows [T, B] whose flags are independent of one another unless given.

    Real environments never emit most of these combinations; code that copes with
    all of them copes with theirs.
    """
    leading = (num_rows, batch_size)
    return Rows(
        observations=tuple(random_leaf(leaf, leading, generator) for leaf in spec.observations),
        rewards=torch.randn(leading, generator=generator),
        previous_actions=torch.randint(spec.action.num_values, leading, generator=generator),
        is_first=random_flags(leading, generator) if is_first is None else is_first,
        terminated=random_flags(leading, generator),
        truncated=random_flags(leading, generator),
    )


def random_unrolls(
    spec: EnvSpec, num_rows: int, batch_size: int, initial_state: State, generator: torch.Generator
) -> Unrolls:
    """Returns unrolls [T + 1, B] that a policy unlike the trained one made."""
    leading, num_actions = (num_rows, batch_size), spec.action.num_values
    steps = Steps(
        rows=random_rows(spec, num_rows, batch_size, generator),
        actions=torch.randint(num_actions, leading, generator=generator),
        policy_outputs={"logits": torch.randn((*leading, num_actions), generator=generator)},
        policy_versions=torch.randint(10, leading, generator=generator),
    )
    return Unrolls(steps, initial_state)


def numbered_unrolls(numbers: list[int], num_rows: int = 3) -> Unrolls:
    """Returns one unroll for each number; the number fills every tensor of the unroll."""
    values = torch.tensor(numbers).repeat(num_rows, 1)
    flags = values % 2 == 1
    steps = Steps(
        rows=Rows((values.float(),), values.float(), values, flags, flags, flags),
        actions=values.clone(),
        policy_outputs={"logits": values.float().unsqueeze(-1)},
        policy_versions=values.clone(),
    )
    return Unrolls(steps, initial_state={"memory": values[0].float().unsqueeze(-1)})


def numbers_of(unrolls: Unrolls) -> list[int]:
    """Returns the numbers that `numbered_unrolls` was given; every tensor must agree."""
    numbers = unrolls.steps.actions[0]
    expected = numbered_unrolls(numbers.tolist(), unrolls.steps.num_rows)
    for got, wanted in zip(tensors_of(unrolls), tensors_of(expected), strict=True):
        assert torch.equal(got, wanted)
    return numbers.tolist()


def assert_same(got: Unrolls, expected: Unrolls) -> None:
    """Asserts that two records hold the same dtypes, shapes and bits."""
    assert got.initial_state.keys() == expected.initial_state.keys()
    for a, b in zip(tensors_of(got), tensors_of(expected), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)


def env_outputs(num_envs: int, *, group: int = 0, value: float = 0.0) -> EnvOutputs:
    """Returns a step of `env_spec()` with `value` in every observation and reward."""
    return EnvOutputs(
        group=group,
        observations=(np.full((num_envs, 3), value, np.float32),),
        rewards=np.full(num_envs, value, np.float32),
        is_first=np.zeros(num_envs, bool),
        terminated=np.zeros(num_envs, bool),
        truncated=np.zeros(num_envs, bool),
    )


def request(num_envs: int, *, submitted_at: float = 0.0) -> Request:
    """Returns a request of `num_envs` environments whose answer is dropped."""
    return Request(
        outputs=env_outputs(num_envs),
        slots=np.arange(num_envs),
        is_session_start=False,
        is_eval=False,
        reply=lambda actions: None,
        submitted_at=submitted_at,
    )


class WatchedCondition(threading.Condition):
    """A condition that tells when a thread waits on it, so that no test need sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.somebody_waits = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits as usual. Until it does, the test cannot get the lock."""
        self.somebody_waits.set()
        return super().wait(timeout)


class WatchedLock:
    """A lock that tells how many threads have asked for it."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.asked.release()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def in_thread(function: Callable[..., Result], *args: object) -> Future[Result]:
    """Calls `function` on a daemon thread, which does not outlive a hang."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(function(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
