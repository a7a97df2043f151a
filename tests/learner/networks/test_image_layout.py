"""Which shapes are read as images, and which of their axes as channels."""

import numpy as np
import pytest

from learner.config.run_config import NetworkConfig
from learner.networks.image_layout import (
    Picture,
    check_image_layout,
    earlier_layouts,
    picture_of,
)
from seed.errors import ConfigError, SpecError
from seed.specs import ArraySpec
from tests.learner.builders import env_spec


def leaf(
    dtype: str, shape: tuple[int, ...], low: float = -np.inf, high: float = np.inf
) -> ArraySpec:
    """Returns the spec of one observation."""
    return ArraySpec(name="observation", dtype=dtype, shape=shape, minimum=low, maximum=high)


def read(spec: ArraySpec, *image_layout: str) -> Picture | None:
    """Returns how `spec` is read."""
    return picture_of(spec, NetworkConfig(image_layout=image_layout))


FIRST, LAST = False, True

# (shape, height, width, channels, channels last): shapes of packages that people use.
CLEAR = [
    ((210, 160, 3), 210, 160, 3, LAST),  # ALE in colour
    ((96, 96, 3), 96, 96, 3, LAST),  # CarRacing
    ((60, 80, 3), 60, 80, 3, LAST),  # miniworld
    ((240, 320, 3), 240, 320, 3, LAST),  # ViZDoom
    ((224, 320, 3), 224, 320, 3, LAST),  # stable-retro
    ((7, 7, 3), 7, 7, 3, LAST),  # MiniGrid
    ((10, 10, 4), 10, 10, 4, LAST),  # MinAtar
    ((16, 16, 3), 16, 16, 3, LAST),  # Snake
    ((6, 7, 2), 6, 7, 2, LAST),  # PettingZoo Connect Four
    ((8, 8, 111), 8, 8, 111, LAST),  # PettingZoo chess
    ((19, 19, 17), 19, 19, 17, LAST),  # PettingZoo Go
    ((72, 96, 4), 72, 96, 4, LAST),  # Football
    ((72, 96, 16), 72, 96, 16, LAST),  # Football, four frames
    ((84, 84, 1), 84, 84, 1, LAST),
    ((5, 5, 12), 5, 5, 12, LAST),
    ((4, 84, 84), 84, 84, 4, FIRST),  # a stack of Atari screens
    ((12, 84, 84), 84, 84, 12, FIRST),  # a stack of four in colour
    ((9, 84, 84), 84, 84, 9, FIRST),  # DrQ
    ((3, 64, 64), 64, 64, 3, FIRST),  # procgen in PyTorch's order
    ((1, 84, 84), 84, 84, 1, FIRST),
    ((5, 11, 11), 11, 11, 5, FIRST),  # highway's OccupancyGrid
    ((12, 8, 8), 8, 8, 12, FIRST),  # chess planes
    ((64, 8, 8), 8, 8, 64, FIRST),
    ((3, 210, 160), 210, 160, 3, FIRST),
    ((12, 60, 80), 60, 80, 12, FIRST),
    ((16, 72, 96), 72, 96, 16, FIRST),
]

# Shapes that fit both layouts.
DOUBTFUL = [
    ((64, 64, 64), 64, 64, 64, LAST),
    ((3, 3, 3), 3, 3, 3, LAST),
    ((4, 4, 16), 4, 4, 16, LAST),  # 2048, one plane for each tile
    ((16, 4, 4), 4, 4, 16, FIRST),
    ((3, 6, 7), 6, 7, 3, FIRST),
    ((6, 7, 9), 6, 7, 9, LAST),
    ((6, 7, 5), 6, 7, 5, LAST),
    ((10, 5, 10), 10, 5, 10, LAST),
    ((84, 3, 84), 84, 3, 84, LAST),
    ((21, 79, 80), 21, 79, 80, LAST),  # NetHack's screen_descriptions
]


@pytest.mark.parametrize(
    ("shape", "height", "width", "channels", "channels_last", "is_clear"),
    [(*case, True) for case in CLEAR] + [(*case, False) for case in DOUBTFUL],
)
def test_three_axes_are_read_by_the_odd_one(
    shape: tuple[int, ...],
    height: int,
    width: int,
    channels: int,
    channels_last: bool,
    is_clear: bool,
) -> None:
    """Where both layouts are possible it is Gymnasium's, and the reading is marked as a guess."""
    expected = Picture(height, width, channels, channels_last, is_clear)
    for dtype in ("uint8", "float32", "bool"):
        assert read(leaf(dtype, shape)) == expected


@pytest.mark.parametrize(
    ("spec", "is_picture"),
    [
        (leaf("uint8", (84, 84), 0, 255), True),  # Atari
        (leaf("uint8", (10, 5), 0, 255), True),  # Catch
        (leaf("uint8", (6, 7), 0, 2), True),  # a board
        (leaf("int8", (15, 15), -1, 1), True),  # Gomoku
        (leaf("bool", (10, 10), 0, 1), True),
        (leaf("float32", (84, 84), 0, 1), True),
        (leaf("float32", (64, 48), 0, 255), True),
        (leaf("float32", (50, 4)), False),  # a window of prices
        (leaf("float32", (60, 40)), False),  # a longer one
        (leaf("float32", (5, 5)), False),  # highway's vehicles
        (leaf("float32", (15, 7), -1, 1), False),  # highway-fast
        (leaf("float64", (20, 20), -1, 1), False),  # a matrix of correlations
        (leaf("float32", (20, 20), 0, 1), False),
        (leaf("int16", (21, 79), 0, 5976), False),  # NetHack's glyphs are names, not shades
        (leaf("int64", (4, 4), 0, 2**16), False),  # 2048
        (leaf("uint8", (24, 3), 0, 255), False),
        (leaf("uint8", (3, 3), 0, 2), False),  # tic-tac-toe
        (leaf("uint8", (1, 84), 0, 255), False),
    ],
)
def test_a_table_is_an_image_only_if_its_numbers_look_like_pixels(
    spec: ArraySpec, is_picture: bool
) -> None:
    """A table of features has no neighbours for a convolution to see."""
    expected = Picture(*spec.shape, channels=1) if is_picture else None
    got = read(spec)
    assert (got and got._replace(channels_last=False)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (leaf("uint8", (4, 84, 84, 3), 0, 255), Picture(84, 84, 12, LAST)),
        (leaf("uint8", (2, 84, 84, 3), 0, 255), Picture(84, 84, 6, LAST)),
        (leaf("uint8", (4, 3, 84, 84), 0, 255), Picture(84, 84, 12, FIRST)),
        (leaf("float32", (4, 64, 64, 3), 0, 1), Picture(64, 64, 12, LAST)),
        (leaf("uint8", (4, 210, 160, 3), 0, 255), Picture(210, 160, 12, LAST)),
        (leaf("float32", (4, 64, 64, 3)), None),
        (leaf("uint8", (84, 84, 3, 4), 0, 255), None),
        (leaf("uint8", (16, 16, 16, 16), 0, 255), None),
        (leaf("float32", (2, 2, 2, 2)), None),
    ],
)
def test_four_axes_are_a_stack_of_images_if_that_is_clear(
    spec: ArraySpec, expected: Picture | None
) -> None:
    """The frames become channels; a doubtful stack is a vector."""
    assert read(spec) == expected


@pytest.mark.parametrize("shape", [(), (4,), (2, 2, 2, 2, 2)])
def test_other_numbers_of_axes_are_vectors(shape: tuple[int, ...]) -> None:
    """A layout for all leaves leaves them alone; a layout for such a leaf is refused."""
    spec = leaf("uint8", shape)
    assert read(spec) is None
    assert read(spec, "channels_first") is None
    assert read(spec, "observation=none") is None
    with pytest.raises(SpecError, match="image_layout of 'observation': expected 2, 3 or 4 axes"):
        read(spec, "observation=channels_first")


def test_the_flag_corrects_the_guess() -> None:
    """An entry for one leaf goes before one for all, and a later entry before an earlier one."""
    spec = leaf("uint8", (12, 84, 84))
    first, last = Picture(84, 84, 12, FIRST), Picture(12, 84, 84, LAST)
    assert read(spec, "channels_last") == last
    assert read(spec, "channels_first") == first
    assert read(spec, "none") is None
    assert read(spec, "channels_last", "observation=auto") == first
    assert read(spec, "observation=channels_last", "channels_first") == last
    assert read(spec, "other=channels_last") == first
    assert read(spec, "none", "channels_last") == last
    assert read(leaf("float32", (50, 4)), "channels_last") == Picture(50, 4, 1)


@pytest.mark.parametrize("entry", ["hwc", "camera=", "=chw", "channels_first,none"])
def test_a_layout_that_does_not_exist_is_refused(entry: str) -> None:
    """The message lists the layouts."""
    with pytest.raises(ConfigError, match="image_layout: expected auto, channels_first, "):
        NetworkConfig(image_layout=("auto", entry))


def test_a_leaf_that_does_not_exist_is_refused() -> None:
    """The message lists the leaves, whose names may hold an equals sign."""
    odd = ArraySpec(name="a=b", dtype="uint8", shape=(12, 84, 84))
    config = NetworkConfig(image_layout=("none", "a=b=channels_last"))
    check_image_layout(env_spec(odd), config)
    assert picture_of(odd, config) == Picture(12, 84, 84, LAST)
    message = r"image_layout: expected one of the leaves \['observation'\], got 'a=b'"
    with pytest.raises(SpecError, match=message):
        check_image_layout(env_spec(), config)


@pytest.mark.parametrize(
    ("spec", "entries"),
    [
        (leaf("uint8", (12, 84, 84)), ["observation=channels_last"]),
        (leaf("float32", (50, 4)), ["observation=channels_last"]),
        (leaf("uint8", (4, 84, 84, 3), 0, 255), ["observation=none"]),
        (leaf("uint8", (4, 4, 16)), ["observation=channels_first"]),
        (leaf("uint8", (84, 84)), []),
        (leaf("uint8", (4, 84, 84)), []),
        (leaf("uint8", (210, 160, 3)), []),
        (leaf("uint8", (64, 64, 64)), []),
        (leaf("uint8", (3, 6, 7)), []),
        (leaf("float32", (4,)), []),
    ],
)
def test_earlier_layouts_give_the_network_of_earlier_versions(
    spec: ArraySpec, entries: list[str]
) -> None:
    """Their old checkpoints fit then; a leaf that is read as before needs no entry."""
    assert earlier_layouts(env_spec(spec), NetworkConfig()) == entries
    given = NetworkConfig(image_layout=tuple(entries))
    assert earlier_layouts(env_spec(spec), given) == []
