"""Measures the time and memory that replay takes for sequences of the published Atari size.

Called by `python -m seed_bench.parts.learner replay`, in a process of its own.
"""

import dataclasses
import time
from pathlib import Path
from typing import Literal

import numpy as np
import psutil
import torch
from torch import Tensor

from learner.agents.r2d2 import R2D2Agent
from learner.agents.steps import example_step
from learner.config.agent_config import R2D2Config
from learner.config.presets import PRESETS
from learner.experience.replay.replay import Replay
from learner.records import Completed, Unrolls, map_tensors
from seed.errors import require
from seed.specs import ArraySpec, EnvSpec


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplayArgs:
    """Replay: inserting and sampling sequences of the atari-r2d2 preset."""

    sequences: int = 1000
    """Sequences held; the preset holds 100,000."""
    num_envs: int = 64
    """Environments whose sequences are inserted together."""
    rounds: int = 40
    """Batches inserted and sampled in turn, once the replay is full."""
    compression: Literal["none", "zstd"] = "none"
    """As the config's `replay_compression`."""
    screens: Path | None = None
    """File of real screens, as np.save writes uint8 [81, num_envs, 84, 84]; by default they
    are noise, which does not compress."""

    def __post_init__(self) -> None:
        require(self.num_envs >= 1, "num_envs", "at least 1", self.num_envs)
        require(self.rounds >= 1, "rounds", "at least 1", self.rounds)
        # A replay with less room than one insert would never hold enough sequences to sample.
        wanted = f"at least {self.num_envs}, as many as are inserted together"
        require(self.sequences >= self.num_envs, "sequences", wanted, self.sequences)


def measure_replay(args: ReplayArgs) -> dict[str, float]:
    """Returns CPU seconds and bytes per sequence of the published Atari size."""
    preset = PRESETS["atari-r2d2"].config
    assert isinstance(preset.agent, R2D2Config)
    frames = ArraySpec(name="observation", dtype="uint8", shape=(84, 84))
    spec = EnvSpec(
        observations=(frames,), action=ArraySpec(name="action", dtype="int64", num_values=18)
    )
    agent = R2D2Agent(spec, preset.network, preset.agent)
    example = example_step(spec, agent)
    blocks = _random_blocks(example, preset.agent.period + 1, args.num_envs)
    if args.screens is not None:
        blocks = _with_screens(blocks, torch.from_numpy(np.load(args.screens, allow_pickle=False)))
    # The replay's memory is measured, not that of batches. Another replay takes the batches'
    # memory beforehand, and is kept until the measurement ends.
    other = _make_replay(args, agent, preset.agent, 2 * args.num_envs)
    _fill(other, blocks, 4)
    replay = _make_replay(args, agent, preset.agent, args.sequences)
    num_blocks = args.sequences + args.num_envs
    resident_bytes = psutil.Process().memory_info().rss
    _fill(replay, blocks, -(-num_blocks // args.num_envs))
    resident_bytes = psutil.Process().memory_info().rss - resident_bytes
    del other
    insert_s = sample_s = 0.0
    for _ in range(args.rounds):
        insert_s -= time.process_time()
        _insert(replay, blocks, follows=True)
        insert_s += time.process_time()
        sample_s -= time.process_time()
        replay.sample()
        sample_s += time.process_time()
    return {
        "insert_s_per_sequence": insert_s / (args.rounds * args.num_envs),
        "sample_s_per_sequence": sample_s / (args.rounds * preset.agent.batch_size),
        "bytes_per_sequence": replay.held_bytes / num_blocks,
        "resident_bytes_per_sequence": resident_bytes / num_blocks,
    }


def _make_replay(args: ReplayArgs, agent: R2D2Agent, config: R2D2Config, capacity: int) -> Replay:
    # Samples and inserts take turns, so that neither ever waits.
    replay = dataclasses.replace(
        config.replay,
        replay_capacity=capacity,
        replay_min_size=1,
        samples_per_insert=config.batch_size / args.num_envs,
        replay_compression=args.compression,
    )
    return Replay(
        replay,
        num_rows=config.num_rows,
        period=config.period,
        batch_size=config.batch_size,
        num_slots=args.num_envs,
        initial_priorities=agent.initial_priorities,
        rng_seed=0,
    )


def _fill(replay: Replay, blocks: Unrolls, num_rounds: int) -> None:
    for number in range(num_rounds):
        _insert(replay, blocks, follows=number > 0)
        if number > 1:
            replay.sample()


def _insert(replay: Replay, blocks: Unrolls, *, follows: bool) -> None:
    slots = np.arange(blocks.num_unrolls)
    replay.insert(Completed(blocks, slots, np.full(len(slots), follows)))


def _random_blocks(example: Unrolls, num_rows: int, num_envs: int) -> Unrolls:
    generator = torch.Generator().manual_seed(0)

    def rows(x: Tensor) -> Tensor:
        shape = (num_rows, num_envs, *x.shape[2:])
        if x.is_floating_point():
            return torch.rand(shape, generator=generator, dtype=x.dtype)
        high = 256 if x.dtype == torch.uint8 else 2
        # Made with the final type: a larger tensor would leave freed memory for the replay.
        return torch.randint(0, high, shape, generator=generator, dtype=x.dtype)

    state = {k: x.expand(num_envs, *x.shape[1:]) for k, x in example.initial_state.items()}
    return Unrolls(map_tensors(rows, example.steps), state)


def _with_screens(blocks: Unrolls, screens: Tensor) -> Unrolls:
    """Puts screens [num_rows, num_envs, 84, 84] in the place of noise, in stacks too."""
    assert screens.shape == blocks.steps.rows.observations[0].shape, "not as many screens as rows"
    (stack,) = [name for name in blocks.initial_state if name.startswith("frames/")]
    stacked = screens[: blocks.initial_state[stack].shape[1]].transpose(0, 1)
    rows = blocks.steps.rows._replace(observations=(screens,))
    return Unrolls(blocks.steps._replace(rows=rows), blocks.initial_state | {stack: stacked})
