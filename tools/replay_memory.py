"""Measures what a sixteenth of the published replay takes, and reckons what all of it does.

    python tools/replay_memory.py     # make replay-memory; writes docs/results/replay-memory.json

Sequences of 121 rows of 84 x 84 bytes, as `seed train atari-r2d2` holds 100,000 of, are
filled with noise and held in a process of their own, whose resident memory is read.
"""

import json
import subprocess
import sys
from pathlib import Path

from learner.config.presets import PRESETS
from seed.provenance import evidence_header

OUT = Path("docs/results/replay-memory.json")
FRACTION = 16
ROOM_GIB = 64


def main() -> int:
    """Writes and prints the evidence; returns the exit code."""
    preset = PRESETS["atari-r2d2"].config
    capacity = preset.agent.replay.replay_capacity  # type: ignore[union-attr]
    environments = preset.actor.envs_per_group * preset.actor.num_groups
    sequences = capacity // FRACTION
    command = ["-m", "seed_bench.parts.learner", "replay", "--sequences", str(sequences)]
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True)
    measured = json.loads(done.stdout)
    calculated, resident = measured["bytes_per_sequence"], measured["resident_bytes_per_sequence"]
    # Each environment's newest sequence, still incomplete, takes room as well.
    full = capacity + environments
    evidence = {
        **evidence_header("python " + " ".join(command)),
        "preset": "atari-r2d2",
        "env_id": "none: noise of uint8 [84, 84]",
        "rng_seeds": [0],
        "sequences": sequences,
        "bytes_per_sequence_calculated": round(calculated),
        "bytes_per_sequence_resident": round(resident),
        "resident_over_calculated": round(resident / calculated, 4),
        "resident_gib": round(resident * sequences / 2**30, 2),
        "full_sequences": capacity,
        "full_blocks": full,
        "full_gib_calculated": round(calculated * full / 2**30, 1),
        "full_gib_by_resident": round(resident * full / 2**30, 1),
        "full_fits_gib": ROOM_GIB,
        "full_fits": resident * full < ROOM_GIB * 2**30,
        "insert_us_per_sequence": round(measured["insert_s_per_sequence"] * 1e6),
        "sample_us_per_sequence": round(measured["sample_s_per_sequence"] * 1e6),
    }
    text = json.dumps(evidence, indent=2)
    OUT.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
