"""The built-in core: torsos read the observation, an LSTM remembers.

Called by the inference and trainer threads, each with networks of its own. Leaves
policy and values to the heads behind it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from learner.config.run_config import NetworkConfig
from learner.networks.base import Core, Torso, num_actions_of
from learner.networks.frame_stack import stack_frames
from learner.networks.image_layout import check_image_layout
from learner.networks.recurrent import ResettingLSTM
from learner.networks.torsos import make_torso
from learner.records import Rows, State
from seed.specs import EnvSpec


class TorsoCore(Core):
    """Torso per observation leaf -> (last action and reward) -> (LSTM)."""

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        super().__init__()
        self.spec = spec
        self.num_context = config.frame_stack - 1
        self.see_last_step = config.see_last_step
        self.precision = config.precision
        check_image_layout(spec, config)
        torsos = [make_torso(leaf, config) for leaf in spec.observations]
        self.torsos = nn.ModuleList(torsos)
        size = sum(torso.output_size for torso in torsos)
        if self.see_last_step:
            self.num_actions = num_actions_of(spec)
            size += self.num_actions + 1
        self.lstm = (
            ResettingLSTM(size, config.lstm_size, config.lstm_forget_bias)
            if config.lstm_size
            else None
        )
        self.output_size = config.lstm_size or size

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        """Returns zeros: the frames before the first row, and the LSTM's hidden and cell."""
        state: State = {}
        if self.num_context:
            for leaf in self.spec.observations:
                shape = (batch_size, self.num_context, *leaf.shape)
                dtype = getattr(torch, leaf.dtype)
                state[f"frames/{leaf.name}"] = torch.zeros(shape, dtype=dtype, device=device)
        if self.lstm is not None:
            for name in ("hidden", "cell"):
                shape = (batch_size, self.lstm.hidden_size)
                state[f"lstm/{name}"] = torch.zeros(shape, device=device)
        return state

    def update_statistics(self, rows: Rows) -> None:
        """Updates the torsos' running means, where they have one, from rows [T, B].

        The first row of each unroll stands for all of it: the others look much the same.
        """
        for frames, torso in zip(rows.observations, self.torsos, strict=True):
            assert isinstance(torso, Torso)
            torso.update_statistics(frames[0])

    def features(self, rows: Rows, state: State) -> tuple[Tensor, State]:
        stacks, next_state = self._stack(rows, state)
        parts = self._look(stacks)
        if self.see_last_step:
            parts.append(self._last_step(rows).flatten(0, 1))
        features = torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]
        features = features.unflatten(0, rows.is_first.shape)
        if self.lstm is not None:
            features, next_state["lstm/hidden"], next_state["lstm/cell"] = self.lstm(
                features, state["lstm/hidden"], state["lstm/cell"], rows.is_first
            )
        return features, next_state

    @torch.no_grad()
    def advance(self, rows: Rows, state: State) -> State:
        """Without an LSTM the state is only frames, and no torso need read them."""
        if self.lstm is None:
            return self._stack(rows, state)[1]
        return self.features(rows, state)[1]

    def _stack(self, rows: Rows, state: State) -> tuple[list[Tensor], State]:
        """Returns each leaf's frames [T, B, S, *shape], and the frames carried on."""
        if not self.num_context:
            return [frames.unsqueeze(2) for frames in rows.observations], {}
        stacks, context = [], {}
        for leaf, frames in zip(self.spec.observations, rows.observations, strict=True):
            name = f"frames/{leaf.name}"
            stack, context[name] = stack_frames(state[name], frames, rows.is_first)
            stacks.append(stack)
        return stacks, context

    def _look(self, stacks: list[Tensor]) -> list[Tensor]:
        """Returns the features of each torso for its leaf's frames, float32 [T * B, F].

        Only the torsos compute in bfloat16: they are nearly all of the work. Memory and
        heads stay float32, and so do all records and all inputs of losses.
        """
        images = [stack.flatten(0, 1) for stack in stacks]
        if self.precision == "float32":
            return [torso(x) for torso, x in zip(self.torsos, images, strict=True)]
        # No cache of cast weights: no weight is used twice, and a CUDA graph could not keep it.
        with torch.autocast(images[0].device.type, torch.bfloat16, cache_enabled=False):
            parts = [torso(x) for torso, x in zip(self.torsos, images, strict=True)]
        return [part.float() for part in parts]

    def _last_step(self, rows: Rows) -> Tensor:
        """Returns [T, B, A + 1]: one-hot previous action and reward, zeros at a first row."""
        action = functional.one_hot(rows.previous_actions, self.num_actions)
        step = torch.cat([action.to(torch.float32), rows.rewards.unsqueeze(-1)], dim=-1)
        return step * (~rows.is_first).to(torch.float32).unsqueeze(-1)
