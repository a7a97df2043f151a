"""What a network does with each leaf of the observation, in words for the log.

Called by the learner once, when the first actor has sent the environment's spec.
"""

import math

from learner.config.run_config import NetworkConfig
from learner.networks.base import Core, class_of_torso
from learner.networks.image_layout import Picture, earlier_layouts
from learner.networks.torsos import choose_torso
from seed.specs import ArraySpec, EnvSpec


def readings(spec: EnvSpec, config: NetworkConfig) -> list[str]:
    """Returns one line for each leaf: how it is read, by which torso, and the flag to change it."""
    cls = class_of_torso(config.torso)
    leaves = spec.observations
    if cls is not None and issubclass(cls, Core):
        return [f"{leaf.name}: {_shape(leaf)}, read by {config.torso}" for leaf in leaves]
    return [_reading(leaf, config) for leaf in leaves]


def advice_on_misfit(spec: EnvSpec, config: NetworkConfig) -> str:
    """Returns a sentence for a checkpoint that does not fit; empty if layouts are not the cause.

    Earlier versions read some shapes otherwise, so a checkpoint of theirs has other weights.
    """
    has_layouts = class_of_torso(config.torso) is None and config.torso != "mlp"
    entries = earlier_layouts(spec, config) if has_layouts else []
    if not entries:
        return ""
    return (
        " (earlier versions read some of its observations otherwise; to read them as then: "
        f"--image-layout {' '.join([*config.image_layout, *entries])}, or network.image_layout in "
        "config.yaml)"
    )


def _reading(leaf: ArraySpec, config: NetworkConfig) -> str:
    if class_of_torso(config.torso) is not None:
        torso, what = config.torso, _shape(leaf)
    else:
        torso, picture = choose_torso(leaf, config)
        what = _vector(leaf) if picture is None else _image(leaf, picture)
    stack = f", the newest {config.frame_stack} stacked" if config.frame_stack > 1 else ""
    return f"{leaf.name}: {what}{stack}, torso {torso}"


def _image(leaf: ArraySpec, picture: Picture) -> str:
    size = f"image {picture.height} x {picture.width}"
    if len(leaf.shape) == 2:
        return f"{size}, 1 channel{_scale(leaf)}"
    where = "last" if picture.channels_last else "first"
    frames = f" of {leaf.shape[0]} frames" if len(leaf.shape) == 4 else ""
    other = "channels_first" if picture.channels_last else "channels_last"
    guess = f" (a guess for {leaf.shape}; {_flag(leaf, other)} changes it)"
    doubt = "" if picture.is_clear else guess
    return f"{size}, {picture.channels} channels{frames} {where}{_scale(leaf)}{doubt}"


def _vector(leaf: ArraySpec) -> str:
    if leaf.is_discrete:
        return f"one of {leaf.num_values}, one-hot"
    size = math.prod(leaf.shape)
    if len(leaf.shape) < 2:
        return f"vector of {_count(size)}{_scale(leaf)}"
    axes = " x ".join(map(str, leaf.shape))
    hint = f" ({_flag(leaf, 'channels_last')} reads it as an image)" if len(leaf.shape) <= 4 else ""
    return f"table {axes}, flattened to {_count(size)}{_scale(leaf)}{hint}"


def _shape(leaf: ArraySpec) -> str:
    return f"one of {leaf.num_values}" if leaf.is_discrete else f"{leaf.dtype} {leaf.shape}"


def _count(size: int) -> str:
    return f"{size:,} number" if size == 1 else f"{size:,} numbers"


def _scale(leaf: ArraySpec) -> str:
    """Says that bytes are divided by 255, where the largest byte does not become 1."""
    if leaf.dtype != "uint8" or leaf.maximum >= 255:
        return ""
    return f", divided by 255 although the largest is {leaf.maximum:g}"


def _flag(leaf: ArraySpec, layout: str) -> str:
    return f"--image-layout {leaf.name}={layout}"
