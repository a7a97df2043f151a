"""Names of video files that can be written, and those that are refused at once."""

from pathlib import Path

import pytest

from actors.args import ActorArgs
from learner.config.args import EvalArgs
from seed.errors import ConfigError
from seed.video_path import check_video_path


@pytest.mark.parametrize("name", ["a.mp4", "b.MP4", "c.webm", "d/e.f.webm"])
def test_names_of_videos_that_browsers_play(name: str) -> None:
    """They say which kind of video it is."""
    check_video_path(Path(name))


@pytest.mark.parametrize("name", ["a.gif", "b.avi", "c", "d.mp4.txt", ".mp4", "mp4"])
def test_other_names_are_refused_where_flags_are_checked(name: str) -> None:
    """Both commands refuse them before they start anything."""
    wanted = r"video: expected a file name that ends in \.mp4 \(H\.264\) or \.webm \(VP9\)"
    for refused in (
        lambda: EvalArgs(run=Path("run"), video=Path(name)),
        lambda: ActorArgs(learner="unix:/x", video=Path(name)),
    ):
        with pytest.raises(ConfigError, match=wanted):
            refused()


def test_directory_is_refused(tmp_path: Path) -> None:
    """The message says what is there."""
    (tmp_path / "x.mp4").mkdir()
    with pytest.raises(ConfigError, match="a directory"):
        check_video_path(tmp_path / "x.mp4")
