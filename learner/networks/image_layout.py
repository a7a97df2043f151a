"""Which observations are pictures, and which of their axes are the channels.

Called when a network is built. Torch-free: it reads only the spec of a leaf. `torsos.py` builds
the network, and `reading.py` says in the log what was decided here.
"""

import math
from typing import NamedTuple

import numpy as np

from learner.config.run_config import NetworkConfig
from seed.errors import SpecError, expected
from seed.specs import ArraySpec, EnvSpec

# A table or a stack of pictures counts as pixels only if both sides are at least this long:
# of bytes, so that boards count; of floats, whose tables are mostly no pictures.
MIN_BYTE_SIDE = 5
MIN_FLOAT_SIDE = 36

# So many channels are common: grey, colour, and a stack of four.
_USUAL_CHANNELS = 4


class Picture(NamedTuple):
    """How a leaf is read as one image: [*frames, C, H, W] or [*frames, H, W, C], or [H, W]."""

    height: int
    """Pixels."""
    width: int
    """Pixels."""
    channels: int
    """Values of a pixel; in a leaf of four axes those of all its frames together."""
    channels_last: bool = False
    """Whether the channels of a frame come after its pixels."""
    is_clear: bool = True
    """Whether the shape leaves no doubt about the layout."""


def picture_of(leaf: ArraySpec, config: NetworkConfig) -> Picture | None:
    """Returns how `leaf` is read as an image; None if it is read as a vector.

    `config.image_layout` decides where it names a layout. Otherwise the shape decides:

        axes  read as
        3     An image. If two neighbouring axes are equal, the third is the channels:
              (12, 84, 84) and (5, 11, 11) are channels first, (84, 84, 3) and (4, 4, 16)
              channels last. Otherwise the smallest axis is the channels, (72, 96, 16), but
              the first axis only if it is at most 4, or at most a quarter of each of the others:
              (3, 6, 7), (12, 60, 80). All other shapes are channels last, as Gymnasium's
              images are: (64, 64, 64), (6, 7, 9), (10, 5, 10).
        2     An image of one channel if the numbers look like pixels; otherwise a vector.
              Pixels are bytes, both sides 5 or longer: (84, 84), (10, 5). Or they are floats
              bounded by 0 and 1 or by 0 and 255, both sides 36 or longer. A window of prices,
              float32 (50, 4), is a vector.
        4     A stack of images, (4, 84, 84, 3) or (4, 3, 84, 84), if the last three axes leave
              no doubt and the numbers look like pixels. Otherwise a vector.
        else  A vector.

    Raises:
      SpecError: a layout is named for this leaf, but it has not 2, 3 or 4 axes.
    """
    layout, is_named = _layout_of(leaf.name, config)
    if is_named and layout.startswith("channels") and not _can_be_picture(leaf):
        got = f"shape {leaf.shape} for {layout}"
        raise SpecError(expected(f"image_layout of {leaf.name!r}", "2, 3 or 4 axes", got))
    return _read(leaf, layout)


def check_image_layout(spec: EnvSpec, config: NetworkConfig) -> None:
    """Raises SpecError if `config.image_layout` names a leaf that the observation does not have."""
    names = [leaf.name for leaf in spec.observations]
    for entry in config.image_layout:
        name, equals, _ = entry.rpartition("=")
        if equals and name not in names:
            raise SpecError(expected("image_layout", f"one of the leaves {names}", repr(name)))


def earlier_layouts(spec: EnvSpec, config: NetworkConfig) -> list[str]:
    """Returns entries of `image_layout` with which leaves are read as before this rule.

    Leaves that are read as before have no entry. Checkpoints of before fit the network that
    the entries give. Then, every leaf of 2 or 3 axes was an image, and its channels came first
    only if the first axis had at most 4 values and the last axis had more.
    """
    entries = []
    for leaf in spec.observations:
        layout = _earlier_layout(leaf.shape)
        is_auto = _layout_of(leaf.name, config)[0] == "auto"
        if is_auto and not _same(_read(leaf, layout), _read(leaf, "auto")):
            entries.append(f"{leaf.name}={layout}")
    return entries


def _earlier_layout(shape: tuple[int, ...]) -> str:
    if len(shape) not in (2, 3):
        return "none"
    return "channels_first" if shape[0] <= _USUAL_CHANNELS < shape[-1] else "channels_last"


def _same(one: Picture | None, other: Picture | None) -> bool:
    """Returns whether two readings make the same network."""
    if one is None or other is None:
        return one is other
    return one._replace(is_clear=True) == other._replace(is_clear=True)


def _layout_of(name: str, config: NetworkConfig) -> tuple[str, bool]:
    """Returns the layout of a leaf, and whether an entry names that leaf; the last entry counts."""
    for_all, for_leaf = "auto", None
    for entry in config.image_layout:
        leaf, equals, layout = entry.rpartition("=")
        if not equals:
            for_all = layout
        elif leaf == name:
            for_leaf = layout
    return (for_all, False) if for_leaf is None else (for_leaf, True)


def _can_be_picture(leaf: ArraySpec) -> bool:
    return 2 <= len(leaf.shape) <= 4


def _read(leaf: ArraySpec, layout: str) -> Picture | None:
    if layout == "none" or not _can_be_picture(leaf):
        return None
    if layout != "auto":
        return _as_picture(leaf.shape, channels_last=layout == "channels_last")
    channels_last, is_clear = True, True
    if len(leaf.shape) > 2:
        channels_last, is_clear = _channels_last(leaf.shape[-3:])
    picture = _as_picture(leaf.shape, channels_last=channels_last)._replace(is_clear=is_clear)
    if len(leaf.shape) == 3:
        return picture
    return picture if is_clear and _looks_like_pixels(leaf, picture) else None


def _channels_last(shape: tuple[int, ...]) -> tuple[bool, bool]:
    """Returns whether three axes are (height, width, channels), and whether that is clear."""
    first, middle, last = shape
    if middle in (first, last) and first != last:
        # Pixels as few as usual channels, (4, 4, 16) or (96, 3, 3), could be the channels.
        return first == middle, middle > _USUAL_CHANNELS
    if last < min(first, middle):
        return True, last <= _USUAL_CHANNELS or 2 * last <= min(first, middle)
    if 4 * first <= min(middle, last):
        return False, True
    return not first <= _USUAL_CHANNELS < last, False


def _as_picture(shape: tuple[int, ...], *, channels_last: bool) -> Picture:
    if len(shape) == 2:
        return Picture(*shape, channels=1)
    height, width = shape[-3:-1] if channels_last else shape[-2:]
    return Picture(height, width, math.prod(shape) // (height * width), channels_last)


def _looks_like_pixels(leaf: ArraySpec, picture: Picture) -> bool:
    side = min(picture.height, picture.width)
    if np.dtype(leaf.dtype).itemsize == 1:
        return side >= MIN_BYTE_SIDE
    is_float = np.issubdtype(leaf.dtype, np.floating)
    bounds = (leaf.minimum, leaf.maximum)
    return is_float and bounds in ((0, 1), (0, 255)) and side >= MIN_FLOAT_SIDE
