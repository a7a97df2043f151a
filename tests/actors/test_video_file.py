"""Video files are of the kind that browsers play, whatever the frames are."""

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from actors.video_file import VideoFile
from seed.errors import ConfigError
from tests.actors.videos import frames_of


def write(path: Path, *frames: Any, frames_per_s: object = 10) -> Path:
    """Writes a video of these frames."""
    file = VideoFile(path, frames_per_s)
    for frame in frames:
        file.add(frame)
    file.close()
    return path


def grey(brightness: int, shape: tuple[int, ...] = (32, 48, 3)) -> np.ndarray:
    """Returns a frame of one brightness."""
    return np.full(shape, brightness, np.uint8)


@pytest.mark.parametrize(
    ("name", "codec", "format_name"),
    [("video.mp4", "h264", "mp4"), ("video.MP4", "h264", "mp4"), ("video.webm", "vp9", "webm")],
)
def test_file_is_of_a_kind_that_browsers_play(
    tmp_path: Path, name: str, codec: str, format_name: str
) -> None:
    """Codec, pixel format, size, rate and number of frames are read back."""
    path = write(tmp_path / name, *(grey(20 * i) for i in range(1, 8)))
    with av.open(str(path)) as container:
        assert format_name in container.format.name
        stream = container.streams.video[0]
        context = stream.codec_context
        assert (context.name, context.pix_fmt) == (codec, "yuv420p")
        assert (context.width, context.height) == (48, 32)
        assert stream.average_rate == 10
    frames = frames_of(path)
    assert [round(frame.mean() / 20) for frame in frames] == [1, 2, 3, 4, 5, 6, 7]


def test_index_comes_before_the_pictures(tmp_path: Path) -> None:
    """A browser can then play the file while it loads (faststart)."""
    data = write(tmp_path / "video.mp4", grey(1), grey(2)).read_bytes()
    assert 0 < data.index(b"moov") < data.index(b"mdat")


@pytest.mark.parametrize("shape", [(31, 47, 3), (1, 1, 3), (210, 161, 3), (5, 2, 3)])
@pytest.mark.parametrize("suffix", [".mp4", ".webm"])
def test_odd_sizes_are_made_even(tmp_path: Path, shape: tuple[int, int, int], suffix: str) -> None:
    """The last row and column are repeated; no pixel is lost."""
    frames = frames_of(write(tmp_path / f"video{suffix}", grey(100, shape), grey(100, shape)))
    height, width, _ = shape
    assert [frame.shape for frame in frames] == [(height + height % 2, width + width % 2, 3)] * 2
    assert abs(int(frames[0][-1, -1, 0]) - 100) < 5


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        (15.0, Fraction(15)),
        (29.97, Fraction(2997, 100)),
        (60 / 7, Fraction(60, 7)),
        (None, Fraction(30)),
        (0, Fraction(30)),
        (-5, Fraction(30)),
        (float("nan"), Fraction(30)),
        (10**9, Fraction(30)),
        ("fast", Fraction(30)),
    ],
)
def test_rate_is_the_environments_if_it_is_one(tmp_path: Path, given: Any, rate: Fraction) -> None:
    """Otherwise the video has 30 frames a second."""
    path = write(tmp_path / "video.mp4", *(grey(i) for i in range(30)), frames_per_s=given)
    with av.open(str(path)) as container:
        found = container.streams.video[0].average_rate
    assert found is not None and abs(found - rate) < Fraction(1, 100)


@pytest.mark.parametrize("shape", [(32, 48), (32, 48, 1), (32, 48, 4)])
def test_grey_and_transparent_frames_are_shown(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """They become colour without a transparency."""
    (frame,) = frames_of(write(tmp_path / "video.mp4", grey(120, shape)))
    assert frame.shape == (32, 48, 3)
    assert abs(frame.mean() - 120) < 3


def test_frame_of_a_view_is_written_as_seen(tmp_path: Path) -> None:
    """A flipped or transposed view is not contiguous in memory."""
    pixels = grey(0)
    pixels[:16] = 200
    (frame,) = frames_of(write(tmp_path / "video.mp4", pixels[::-1]))
    assert frame[:14].mean() < 10 and frame[18:].mean() > 190


@pytest.mark.parametrize(
    ("frame", "got"),
    [
        (None, "None"),
        (grey(1).astype(np.float32), r"float32 \[32, 48, 3\]"),
        (grey(1, (32, 48, 5)), r"uint8 \[32, 48, 5\]"),
        (grey(1, (0, 48, 3)), r"uint8 \[0, 48, 3\]"),
        ([grey(1)], r"\[array"),
    ],
)
def test_frame_that_is_no_picture_is_refused(tmp_path: Path, frame: Any, got: str) -> None:
    """The message tells dtype and shape."""
    wanted = rf"^video: expected frames that are uint8 \[H, W, 3\], got {got}"
    with pytest.raises(ConfigError, match=wanted):
        write(tmp_path / "video.mp4", frame)


def test_frames_of_two_sizes_are_refused(tmp_path: Path) -> None:
    """A video has one size."""
    with pytest.raises(ConfigError, match=r"frames of one size, \[32, 48, 3\], got \[16, 48, 3\]"):
        write(tmp_path / "video.mp4", grey(1), grey(1, (16, 48, 3)))


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file stands where the directory must be."""
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "video.mp4"
    with pytest.raises(ConfigError, match=f"^video: cannot write {path}: "):
        write(path, grey(1))


def test_older_video_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    """A kill leaves no half file under the name that was asked for."""
    path = write(tmp_path / "video.mp4", grey(1))
    before = path.read_bytes()
    file = VideoFile(path, 10)
    file.add(grey(200))
    assert path.read_bytes() == before
    file.close()
    file.close()
    assert frames_of(path)[0].mean() > 190


def test_missing_pyav_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message holds the command that installs it."""
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ConfigError, match=r"in the checkout: pip install -e '\.\[video\]'"):
        VideoFile(tmp_path / "video.mp4", 10)
