"""The log's words on how each leaf of an observation is read."""

import pytest

from learner.config.run_config import NetworkConfig
from learner.networks.reading import advice_on_misfit, readings
from seed.specs import ArraySpec
from tests.learner.builders import env_spec


def leaf(dtype: str, *shape: int, name: str = "observation", maximum: float = 255) -> ArraySpec:
    """Returns the spec of one observation."""
    return ArraySpec(name=name, dtype=dtype, shape=shape, minimum=0, maximum=maximum)


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (leaf("uint8", 12, 84, 84), "image 84 x 84, 12 channels first, torso impala_shallow"),
        (leaf("uint8", 7, 7, 3), "image 7 x 7, 3 channels last, torso small_conv"),
        (leaf("uint8", 84, 84), "image 84 x 84, 1 channel, torso impala_shallow"),
        (
            leaf("uint8", 4, 84, 84, 3),
            "image 84 x 84, 12 channels of 4 frames last, torso impala_shallow",
        ),
        (
            leaf("float32", 64, 64, 64),
            "image 64 x 64, 64 channels last (a guess for (64, 64, 64); --image-layout "
            "observation=channels_first changes it), torso impala_shallow",
        ),
        (
            leaf("uint8", 16, 4, 4),
            "image 4 x 4, 16 channels first (a guess for (16, 4, 4); --image-layout "
            "observation=channels_last changes it), torso small_conv",
        ),
        (
            leaf("float32", 50, 4),
            "table 50 x 4, flattened to 200 numbers (--image-layout observation=channels_last "
            "reads it as an image), torso mlp",
        ),
        (leaf("float32", 4), "vector of 4 numbers, torso mlp"),
        (leaf("float32"), "vector of 1 number, torso mlp"),
        (
            leaf("float32", 2, 2, 2, 2, 2),
            "table 2 x 2 x 2 x 2 x 2, flattened to 32 numbers, torso mlp",
        ),
        (
            leaf("uint8", 7, 7, 3, maximum=10),
            "image 7 x 7, 3 channels last, divided by 255 although the largest is 10, "
            "torso small_conv",
        ),
        (
            ArraySpec(name="observation", dtype="int64", num_values=6),
            "one of 6, one-hot, torso mlp",
        ),
    ],
)
def test_line_says_how_a_leaf_is_read(spec: ArraySpec, line: str) -> None:
    """A user sees a wrong guess before the run is over, and the flag that corrects it."""
    assert readings(env_spec(spec), NetworkConfig()) == [f"observation: {line}"]


def test_each_leaf_has_a_line_with_its_frame_stack() -> None:
    """A convolutional torso leaves vectors to the mlp."""
    spec = env_spec(leaf("uint8", 84, 84, name="screen"), leaf("float32", 3, name="speed"))
    assert readings(spec, NetworkConfig(torso="nature", frame_stack=4)) == [
        "screen: image 84 x 84, 1 channel, the newest 4 stacked, torso nature",
        "speed: vector of 3 numbers, the newest 4 stacked, torso mlp",
    ]


def test_mlp_flattens_images() -> None:
    """The line says so, also where the image is smaller than any kernel."""
    wide = env_spec(leaf("uint8", 84, 84))
    assert "table 84 x 84, flattened to 7,056" in readings(wide, NetworkConfig(torso="mlp"))[0]
    assert "flattened to 8 numbers" in readings(env_spec(leaf("bool", 2, 2, 2)), NetworkConfig())[0]


@pytest.mark.parametrize(
    ("torso", "line"),
    [
        ("symlog_torso:SymlogTorso", "observation: float32 (3,), torso symlog_torso:SymlogTorso"),
        ("gru_core:GRUCore", "observation: float32 (3,), read by gru_core:GRUCore"),
    ],
)
def test_networks_of_other_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, torso: str, line: str
) -> None:
    """They decide themselves how they read a leaf."""
    monkeypatch.syspath_prepend("tests/packages")
    assert readings(env_spec(), NetworkConfig(torso=torso)) == [line]
    assert advice_on_misfit(env_spec(), NetworkConfig(torso=torso)) == ""


def test_advice_names_the_flag_that_reads_as_earlier_versions_did() -> None:
    """It is empty where the layout is not why a checkpoint does not fit."""
    spec = env_spec(leaf("uint8", 12, 84, 84))
    assert advice_on_misfit(spec, NetworkConfig()) == (
        " (earlier versions read some of its observations otherwise; to read them as then: "
        "--image-layout observation=channels_last, or network.image_layout in config.yaml)"
    )
    assert advice_on_misfit(env_spec(), NetworkConfig()) == ""
