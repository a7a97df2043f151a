"""A trained policy for Python programs: no server, no actor, no environment library.

    policy = load_policy("runs/pong")
    action, state = policy.act(observation)            # the first step of an episode
    action, state = policy.act(observation, state)     # every step after it

Everything happens on the calling thread.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from learner.agents.base import ActInput, Agent
from learner.agents.registry import make_agent
from learner.device.setup import choose_device
from learner.loaded_run import load_run, load_weights
from learner.records import Rows, State
from seed.errors import SpecError, expected
from seed.serialization import structure
from seed.specs import ArraySpec, EnvSpec


class PolicyState(NamedTuple):
    """The state that a policy keeps between two steps of its environments."""

    network: State
    """[B, ...]: the network's state, on the policy's device."""
    last_actions: Tensor
    """int64 [B]: the actions chosen at the step before."""


class Policy:
    """Acts as `seed eval` does, from one checkpoint."""

    def __init__(
        self,
        agent: Agent,
        network: nn.Module,
        spec: EnvSpec,
        *,
        device: torch.device,
        rng_seed: int,
    ) -> None:
        """Takes a network that `agent.build_network` made, with its weights."""
        self.spec = spec
        """The shapes and dtypes of observations and actions."""
        self._agent = agent
        self._network = agent.acting_part(network).to(device).eval()
        self._device = device
        self._generator = torch.Generator(device).manual_seed(rng_seed)

    def initial_state(self, batch_size: int = 1) -> PolicyState:
        """Returns the state before the first step of `batch_size` episodes."""
        return PolicyState(
            self._agent.initial_state(batch_size, self._device),
            torch.zeros(batch_size, dtype=torch.int64, device=self._device),
        )

    def act(
        self,
        observation: Any,
        state: PolicyState | None = None,
        *,
        reward: Any = 0.0,
        is_first: Any = None,
        greedy: bool = True,
    ) -> tuple[Any, PolicyState]:
        """Chooses an action for one observation, or actions for a batch of them.

        Args:
          observation: as the environment returns it: an array, or dicts and tuples of arrays.
            With a leading dimension B it is a batch. Discrete values count from 0.
          state: the state that the call before returned; None at the first step of an episode.
          reward: float, or [B]: received on arriving at the observation, for networks that see
            their last reward.
          is_first: bool, or [B]: where an episode starts. By default everywhere if `state` is
            None, else nowhere.
          greedy: act as `seed eval` does; False: explore as in training.

        Returns:
          The action, an int, or int64 [B] for a batch; and the state for the next call.

        Raises:
          SpecError: an observation of another shape or range, or a state of another batch size.
        """
        leaves, is_batch = self._read(observation)
        batch_size = len(leaves[0])
        if is_first is None:
            is_first = state is None
        if state is None:
            state = self.initial_state(batch_size)
        if len(state.last_actions) != batch_size:
            got = f"one for {len(state.last_actions)}"
            raise SpecError(expected("state", f"one for {batch_size} environments", got))
        inputs = ActInput(
            rows=self._rows(leaves, state, reward, is_first),
            state=state.network,
            slots=torch.arange(batch_size, device=self._device),
            greedy=torch.full((batch_size,), greedy, device=self._device),
        )
        with torch.inference_mode():
            output = self._agent.act(self._network, inputs, self._generator)
        actions = output.actions.cpu().numpy()
        return actions if is_batch else int(actions[0]), PolicyState(output.state, output.actions)

    def _rows(
        self, leaves: list[np.ndarray], state: PolicyState, reward: Any, is_first: Any
    ) -> Rows:
        batch_size = len(leaves[0])

        def row(values: Any, dtype: torch.dtype) -> Tensor:
            tensor = torch.as_tensor(values, dtype=dtype, device=self._device)
            return tensor.expand(batch_size).unsqueeze(0)

        ends = row(False, torch.bool)
        return Rows(
            observations=tuple(torch.tensor(x, device=self._device)[None] for x in leaves),
            rewards=row(reward, torch.float32),
            previous_actions=state.last_actions.unsqueeze(0),
            is_first=row(is_first, torch.bool),
            terminated=ends,
            truncated=ends,
        )

    def _read(self, observation: Any) -> tuple[list[np.ndarray], bool]:
        """Returns the leaves [B, *shape] in the order of the spec, and whether it is a batch."""
        specs = self.spec.observations
        arrays = [np.asarray(_leaf(observation, leaf.name), leaf.dtype) for leaf in specs]
        is_batch = arrays[0].ndim == len(specs[0].shape) + 1
        if not is_batch:
            arrays = [array[np.newaxis] for array in arrays]
        for leaf, array in zip(specs, arrays, strict=True):
            _check(leaf, array, batch_size=len(arrays[0]))
        return arrays, is_batch


def load_policy(
    run: Path | str,
    *,
    checkpoint: str | int | None = None,
    device: str = "auto",
    rng_seed: int = 0,
) -> Policy:
    """Returns the policy of a run.

    Args:
      run: a run directory, or the directory of one checkpoint.
      checkpoint: of a run directory: "latest", "best" or a learner step. None: "latest".
      device: "auto" (CUDA where there is one), "cpu", "cuda", ...
      rng_seed: seed of the actions that are drawn when the policy explores.

    Raises:
      ConfigError: `run` is no run, or this machine does not have the device.
      CheckpointError: there is no such checkpoint, or it is missing, torn or of another network.
    """
    loaded = load_run(Path(run), None if checkpoint is None else str(checkpoint))
    spec = structure(loaded.checkpoint.state["spec"], EnvSpec)
    agent = make_agent(spec, loaded.config)
    network = agent.build_network()
    load_weights(network, loaded)
    return Policy(agent, network, spec, device=choose_device(device), rng_seed=rng_seed)


def _leaf(observation: Any, name: str) -> Any:
    """Returns the leaf that a spec calls `name`: "observation", or a path like "camera/0"."""
    if isinstance(observation, Mapping):
        children = {str(key): child for key, child in observation.items()}
    elif isinstance(observation, tuple | list) and name.partition("/")[0].isdecimal():
        children = {str(index): child for index, child in enumerate(observation)}
    else:
        return observation
    for key, child in children.items():
        if name == key or name.startswith(f"{key}/"):
            return _leaf(child, name[len(key) + 1 :])
    raise SpecError(expected("observation", f"a leaf {name!r}", f"leaves {list(children)}"))


def _check(leaf: ArraySpec, array: np.ndarray, *, batch_size: int) -> None:
    field = f"observations[{leaf.name!r}]"
    if array.shape != (batch_size, *leaf.shape):
        wanted = f"shape {list(leaf.shape)}, or [B, ...] of it in every leaf"
        raise SpecError(expected(field, wanted, list(array.shape)))
    if leaf.is_discrete and not ((array >= 0) & (array < leaf.num_values)).all():
        raise SpecError(expected(field, f"values in 0 .. {leaf.num_values - 1}", array.tolist()))
