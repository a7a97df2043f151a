"""The plot of a learner's load."""

import shutil
from pathlib import Path

import pytest

from tools.plot_scale import main

EVIDENCE = Path(__file__).parents[2] / "docs" / "results" / "scale.json"


def test_plot_is_written_beside_the_results(tmp_path: Path) -> None:
    """The plot shows all series of the file of evidence."""
    results = tmp_path / "scale.json"
    shutil.copy(EVIDENCE, results)
    assert main([str(results)]) == 0
    assert results.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_results_that_cannot_be_read_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is missing, or torn."""
    results = tmp_path / "scale.json"
    assert main([str(results)]) == 2
    results.write_text('{"hardware": "a machi')
    assert main([str(results)]) == 2
    assert capsys.readouterr().err.count("scale.json: expected what seed load --json prints") == 2
