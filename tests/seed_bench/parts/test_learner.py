"""What `seed bench` measures of the learner, one part at a time: what is refused.

That each part can be measured is shown by tests/seed_bench/test_bench.py.
"""

import pytest

from seed_bench.parts.learner import main


@pytest.mark.parametrize(
    ("part", "flags", "field"),
    [
        ("wire", ("--envs-per-group", "0"), "envs_per_group"),
        ("replay", ("--sequences", "20"), "sequences"),
        ("forward", ("--run", "x", "--batch-sizes", "0"), "batch_sizes"),
        ("train", ("--run", "x", "--seconds", "0"), "seconds"),
    ],
)
def test_parts_refuse_what_cannot_be_measured(
    part: str, flags: tuple[str, ...], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Naming the field; some of it would never end."""
    try:
        code = main([part, *flags])
    except SystemExit as ended:
        code = ended.code
    assert code in (1, 2)
    assert field in capsys.readouterr().err
