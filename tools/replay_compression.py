"""Measures what compressing replayed frames would save and cost, on real Atari frames.

    python tools/replay_compression.py     # writes docs/results/replay-compression.json

A random policy plays; its screens are cut into blocks of 80 frames (the published recipe)
or 20 (the preset for CPUs), as the replay holds them. Each method compresses a block at
once or frame by frame, as it is or as the difference (XOR) from the frame before. Times
are CPU seconds of one thread, the best of two passes over all blocks of a game. lz4 is
among the methods where it is installed.
"""

import argparse
import importlib.util
import itertools
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from actors.envs import make_vector_env
from seed.env_config import AtariConfig, EnvConfig
from seed.provenance import evidence_header

GAMES = ("ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Seaquest-v5", "ALE/MsPacman-v5")
PERIODS = (80, 20)
SCREEN = (84, 84)
NUM_ENVS, NUM_FRAMES, SKIPPED_FRAMES = 16, 161, 400
PASSES = 2
RNG_SEED = 1


class Method(NamedTuple):
    """A way to compress bytes, and back."""

    compress: Callable[[memoryview], bytes]
    decompress: Callable[[bytes], bytes]


def methods() -> dict[str, Method]:
    """Returns every method by the name it has in the table."""
    named = {
        f"zlib {level}": Method(lambda x, level=level: zlib.compress(x, level), zlib.decompress)
        for level in (1, 6)
    }
    if importlib.util.find_spec("lz4"):
        lz4 = importlib.import_module("lz4.block")
        named["lz4"] = Method(lz4.compress, lz4.decompress)
    for level in (1, 3, 9):
        compress = zstandard.ZstdCompressor(level=level).compress
        named[f"zstd {level}"] = Method(compress, zstandard.ZstdDecompressor().decompress)
    return named


def play(env_id: str, *, num_envs: int, num_frames: int) -> np.ndarray:
    """Returns screens [num_envs, num_frames, 84, 84] of a random policy, games under way."""
    env = make_vector_env(
        EnvConfig(env_id=env_id, atari=AtariConfig(full_action_space=False)), num_envs=num_envs
    )
    rng = np.random.default_rng(RNG_SEED)
    num_actions = env.single_action_space.n  # type: ignore[attr-defined]
    screens = np.empty((num_envs, num_frames, *SCREEN), np.uint8)
    env.reset(seed=RNG_SEED)
    for t in range(-SKIPPED_FRAMES, num_frames):
        screen, *_ = env.step(rng.integers(num_actions, size=num_envs))
        if t >= 0:
            screens[:, t] = screen
    env.close()
    return screens


def differences(block: np.ndarray) -> np.ndarray:
    """Returns each frame XOR the one before, the first as it is."""
    delta = block.copy()
    np.bitwise_xor(block[1:], block[:-1], out=delta[1:])
    return delta


def sums(delta: np.ndarray) -> np.ndarray:
    """Undoes `differences`, in place."""
    for t in range(1, len(delta)):
        np.bitwise_xor(delta[t], delta[t - 1], out=delta[t])
    return delta


def measure(blocks: np.ndarray, method: Method, *, whole: bool, delta: bool) -> dict[str, float]:
    """Returns ratio and CPU microseconds per frame of blocks [n, period, 84, 84]."""
    best_in, best_out, size = np.inf, np.inf, 0
    for _ in range(PASSES):
        began = time.thread_time()
        packed = [pack(block, method, whole=whole, delta=delta) for block in blocks]
        packed_at = time.thread_time()
        unpacked = blocks[:0]
        for chunks in packed:
            unpacked = unpack(chunks, method, blocks.shape[1:], delta=delta)
        ended = time.thread_time()
        assert np.array_equal(unpacked, blocks[-1]), "not lossless"
        best_in, best_out = min(best_in, packed_at - began), min(best_out, ended - packed_at)
        size = sum(len(chunk) for chunks in packed for chunk in chunks)
    num_frames = blocks.shape[0] * blocks.shape[1]
    return {
        "ratio": round(blocks.nbytes / size, 1),
        "compress_us_per_frame": round(best_in / num_frames * 1e6, 2),
        "decompress_us_per_frame": round(best_out / num_frames * 1e6, 2),
    }


def pack(block: np.ndarray, method: Method, *, whole: bool, delta: bool) -> list[bytes]:
    """Returns a block compressed, in one piece or in one a frame."""
    frames = differences(block) if delta else block
    return [method.compress(piece.data) for piece in (frames[np.newaxis] if whole else frames)]


def unpack(
    chunks: list[bytes], method: Method, shape: tuple[int, ...], *, delta: bool
) -> np.ndarray:
    """Returns the block of `pack`."""
    block = np.empty(shape, np.uint8)
    pieces = block.reshape(len(chunks), -1)
    for piece, chunk in zip(pieces, chunks, strict=True):
        piece[:] = np.frombuffer(method.decompress(chunk), np.uint8)
    return sums(block) if delta else block


def measure_game(env_id: str) -> dict[str, object]:
    """Returns a row of the table for each method, and what the replay itself then costs."""
    screens = play(env_id, num_envs=NUM_ENVS, num_frames=NUM_FRAMES)
    table = []
    for (name, method), period in itertools.product(methods().items(), PERIODS):
        blocks = screens[:, 1:].reshape(-1, period, *SCREEN)
        for whole, delta in itertools.product((True, False), repeat=2):
            if whole or period == max(PERIODS):  # frame by frame, blocks make no difference
                kind = {"method": name, "period": period, "whole_block": whole, "xor": delta}
                table.append(kind | measure(blocks, method, whole=whole, delta=delta))
    return {"env_id": env_id, "frames": table, "replay": measure_replay(screens[:, :81])}


def measure_replay(screens: np.ndarray) -> dict[str, dict[str, float]]:
    """Returns what `parts.learner replay` measures with these screens, by compression."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "screens.npy"
        np.save(file, np.ascontiguousarray(screens.swapaxes(0, 1)))
        command = [
            sys.executable,
            "-m",
            "seed_bench.parts.learner",
            "replay",
            "--screens",
            str(file),
        ]
        command += ["--num-envs", str(len(screens))]
        kinds = {
            "none": [*command, "--sequences", "1000"],
            "zstd": [*command, "--sequences", "5000", "--compression", "zstd"],
        }
        return {
            kind: json.loads(subprocess.check_output(arguments, text=True))
            for kind, arguments in kinds.items()
        }


def main(arguments: list[str]) -> int:
    """Writes the evidence; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/replay-compression.json"))
    options = parser.parse_args(arguments)
    evidence = {
        **evidence_header(" ".join(["python", "tools/replay_compression.py", *arguments])),
        "rng_seeds": [RNG_SEED],
        "games": [measure_game(env_id) for env_id in GAMES],
    }
    options.out.write_text(json.dumps(evidence, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
