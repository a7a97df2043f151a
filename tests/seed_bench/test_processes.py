"""Modules that run as parts of a measurement, and reports that a run still writes."""

import json
from pathlib import Path

import pytest

from seed.errors import SeedError
from seed_bench.processes import flags_of, reports_so_far, run_module


def test_object_that_a_module_prints_is_returned() -> None:
    """The module runs with one thread for its libraries."""
    flags = flags_of({"env-id": "seed/Catch-v0", "seconds": 0.05, "num-envs": 2})
    report = run_module(["seed_bench.parts.env", "--json", *flags])
    assert (report["env_id"], report["num_envs"]) == ("seed/Catch-v0", 2)


def test_module_that_fails_is_an_error_with_its_words() -> None:
    """The error names the command and holds its output."""
    with pytest.raises(SeedError, match=r"(?s)parts.env --env-id Nothing-v0 failed.*env_id"):
        run_module(["seed_bench.parts.env", "--env-id", "Nothing-v0"])


def test_report_that_is_half_written_is_left_out(tmp_path: Path) -> None:
    """The run writes while its file is read, and there is no file before its first report."""
    assert reports_so_far(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"env_steps": 8}) + '\n{"env_st')
    assert reports_so_far(tmp_path) == [{"env_steps": 8}]
