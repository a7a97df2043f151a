"""Which files a video can be written to. Read where flags are checked, on both sides."""

from pathlib import Path

from seed.errors import ConfigError, expected

# Browsers play these two: H.264 in MP4, and VP9 in WebM.
CODECS = {".mp4": "libx264", ".webm": "libvpx-vp9"}


def check_video_path(path: Path) -> None:
    """Raises ConfigError if no video can have this name."""
    if path.suffix.lower() not in CODECS:
        wanted = "a file name that ends in .mp4 (H.264) or .webm (VP9), which browsers play"
        raise ConfigError(expected("video", wanted, path))
    if path.is_dir():
        raise ConfigError(expected("video", "a file", f"{path}, a directory"))
