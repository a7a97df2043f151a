"""The docs' page about metrics is made from the table, and committed as made."""

from pathlib import Path

import pytest

from learner.reporting.metric_table import METRICS, Metric
from learner.reporting.metrics_page import metrics_page, write_page

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_committed_page_is_what_the_table_makes(tmp_path: Path) -> None:
    """`make docs` makes the page again."""
    write_page(tmp_path / "metrics.md")
    assert (tmp_path / "metrics.md").read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_page_has_a_row_of_six_cells_for_each_metric(metric: Metric) -> None:
    """A "|" in a text would start another cell."""
    (row,) = (line for line in metrics_page().splitlines() if f"| `{metric.name}` |" in line)
    assert row.replace("\\|", "").count("|") == 7
