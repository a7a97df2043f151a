"""Policy and value over one shared torso: what V-trace trains."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from learner.networks.frame_stack import stack_frames
from learner.networks.recurrent import ResettingLSTM
from learner.networks.torsos import Torso, initialize, make_torso
from learner.records import Rows, State
from seed.config import NetworkConfig
from seed.specs import EnvSpec


class ActorCriticOutput(NamedTuple):
    """What the network says at each row."""

    logits: Tensor
    """float32 [T, B, A]: unnormalised log-probabilities of the policy."""
    values: Tensor
    """float32 [T, B]."""


class ActorCritic(nn.Module):
    """Torso per observation leaf -> (last action and reward) -> (LSTM) -> heads.

    One `forward` serves acting (T = 1) and training (T + 1 rows), so that what
    is trained is what acted.
    """

    def __init__(self, spec: EnvSpec, config: NetworkConfig) -> None:
        super().__init__()
        self.spec = spec
        self.num_actions = spec.action.num_values
        self.num_context = config.frame_stack - 1
        self.see_last_step = config.see_last_step
        torsos = [make_torso(leaf, config) for leaf in spec.observations]
        self.torsos = nn.ModuleList(torsos)
        size = sum(torso.output_size for torso in torsos)
        if self.see_last_step:
            size += self.num_actions + 1
        self.lstm = ResettingLSTM(size, config.lstm_size) if config.lstm_size else None
        size = config.lstm_size or size
        self.policy_head = nn.Linear(size, self.num_actions)
        self.value_head = nn.Linear(size, 1)
        # A policy that starts near uniform, whatever the torso says.
        initialize(self.policy_head, gain=0.01)
        initialize(self.value_head, gain=1.0)

    def initial_state(self, batch_size: int, device: torch.device | str = "cpu") -> State:
        """Returns the state before an environment's first row, zeros [B, ...]."""
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
        """Takes note of rows [T, B] in the running means of the torsos that keep one.

        The first row of each unroll stands for all of it: the others look much the same.
        """
        for frames, torso in zip(rows.observations, self.torsos, strict=True):
            assert isinstance(torso, Torso)
            torso.update_statistics(frames[0])

    def forward(self, rows: Rows, state: State) -> tuple[ActorCriticOutput, State]:
        """Runs rows [T, B] in order from `state` [B, ...].

        `rows.rewards` are those the network may see: scaled and clipped.
        """
        num_rows, batch_size = rows.is_first.shape
        next_state: State = {}
        features = []
        for leaf, frames, torso in zip(
            self.spec.observations, rows.observations, self.torsos, strict=True
        ):
            stacked = frames.unsqueeze(2)
            if self.num_context:
                name = f"frames/{leaf.name}"
                stacked, next_state[name] = stack_frames(state[name], frames, rows.is_first)
            features.append(torso(stacked.flatten(0, 1)))
        if self.see_last_step:
            features.append(self._last_step(rows).flatten(0, 1))
        core = torch.cat(features, dim=-1) if len(features) > 1 else features[0]
        core = core.unflatten(0, (num_rows, batch_size))
        if self.lstm is not None:
            core, next_state["lstm/hidden"], next_state["lstm/cell"] = self.lstm(
                core, state["lstm/hidden"], state["lstm/cell"], rows.is_first
            )
        logits = self.policy_head(core)
        return ActorCriticOutput(logits, self.value_head(core).squeeze(-1)), next_state

    def _last_step(self, rows: Rows) -> Tensor:
        """Returns [T, B, A + 1]: one-hot previous action and reward, zeros at a first row."""
        action = functional.one_hot(rows.previous_actions, self.num_actions)
        step = torch.cat([action.to(torch.float32), rows.rewards.unsqueeze(-1)], dim=-1)
        return step * (~rows.is_first).to(torch.float32).unsqueeze(-1)
