"""What reads one observation leaf: [N, S, *shape] -> features [N, F].

S is the frame stack. A torso is chosen from the leaf's spec and the config; the
networks in this package put recurrence and heads behind it.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from seed.config import NetworkConfig
from seed.errors import SpecError, expected
from seed.specs import ArraySpec

# Images at least this large take a strided Atari network under "auto".
LARGE_IMAGE_PIXELS = 36


def make_torso(leaf: ArraySpec, config: NetworkConfig) -> nn.Module:
    """Returns the torso for `leaf`; raises SpecError if `config.torso` cannot read it."""
    kind = config.torso if config.torso != "auto" else _automatic_torso(leaf)
    if kind == "mlp" or not _is_image(leaf):
        return MLPTorso(leaf, config.frame_stack, config.hidden_sizes)
    image = ImageInput(leaf, config.frame_stack)
    if kind == "impala_deep":
        return ConvTorso(image, _impala_deep(image.channels), dense_size=256)
    layers, dense_size = _CONV_STACKS[kind]
    return ConvTorso(image, _plain_convs(image.channels, layers), dense_size=dense_size)


def _is_image(leaf: ArraySpec) -> bool:
    return len(leaf.shape) in (2, 3)


def _automatic_torso(leaf: ArraySpec) -> str:
    if not _is_image(leaf):
        return "mlp"
    height, width, _ = _image_layout(leaf)
    return "impala_shallow" if min(height, width) >= LARGE_IMAGE_PIXELS else "small_conv"


def _image_layout(leaf: ArraySpec) -> tuple[int, int, str]:
    """Returns (height, width, layout) with layout HW, HWC or CHW.

    Three axes are HWC, as Gymnasium's image spaces are, unless only the first
    is small enough to be channels.
    """
    if len(leaf.shape) == 2:
        return leaf.shape[0], leaf.shape[1], "HW"
    first, middle, last = leaf.shape
    if first <= 4 < last:
        return middle, last, "CHW"
    return first, middle, "HWC"


class ImageInput(nn.Module):
    """Stacked images of any layout -> float32 [N, C, H, W], bytes scaled to [0, 1]."""

    def __init__(self, leaf: ArraySpec, frame_stack: int) -> None:
        super().__init__()
        self.height, self.width, self.layout = _image_layout(leaf)
        colours = math.prod(leaf.shape) // (self.height * self.width)
        self.channels = frame_stack * colours
        self.scale = 1 / 255 if leaf.dtype == "uint8" else 1.0

    def forward(self, frames: Tensor) -> Tensor:
        if self.layout == "HWC":
            frames = frames.movedim(-1, 2)  # [N, S, C, H, W]
        images = frames.reshape(len(frames), self.channels, self.height, self.width)
        images = images.to(torch.float32)
        return images.mul_(self.scale) if self.scale != 1.0 else images


class MLPTorso(nn.Module):
    """Fully connected layers with ReLU over a flattened (or one-hot) leaf."""

    def __init__(self, leaf: ArraySpec, frame_stack: int, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.num_values = leaf.num_values
        size = frame_stack * (leaf.num_values or math.prod(leaf.shape))
        layers: list[nn.Module] = []
        for hidden_size in hidden_sizes:
            layers += [nn.Linear(size, hidden_size), nn.ReLU()]
            size = hidden_size
        self.layers = nn.Sequential(*layers)
        self.output_size = size

    def forward(self, values: Tensor) -> Tensor:
        if self.num_values:
            values = functional.one_hot(values.long(), self.num_values)
        return self.layers(values.flatten(1).to(torch.float32))


class ConvTorso(nn.Module):
    """Convolutions, then one dense layer with ReLU."""

    def __init__(self, image: ImageInput, convs: nn.Sequential, *, dense_size: int) -> None:
        super().__init__()
        self.image = image
        self.convs = convs
        with torch.no_grad():
            try:
                probe = convs(torch.zeros(1, image.channels, image.height, image.width))
            except RuntimeError as error:
                size = f"{image.height} x {image.width} pixels"
                raise SpecError(
                    expected("torso", "a network whose kernels fit the image", size)
                ) from error
        self.dense = nn.Linear(probe.numel(), dense_size)
        self.output_size = dense_size

    def forward(self, frames: Tensor) -> Tensor:
        features = self.convs(self.image(frames)).flatten(1)
        return functional.relu(self.dense(features))


# (output channels, kernel, stride) of each convolution, and the dense size.
_CONV_STACKS: dict[str, tuple[tuple[tuple[int, int, int], ...], int]] = {
    # Young and Tian 2019 (MinAtar): one small convolution.
    "small_conv": (((16, 3, 1),), 128),
    # Espeholt et al. 2018, figure 3 left (as in Mnih et al. 2013).
    "impala_shallow": (((16, 8, 4), (32, 4, 2)), 256),
    # Mnih et al. 2015.
    "nature": (((32, 8, 4), (64, 4, 2), (64, 3, 1)), 512),
}


def _plain_convs(channels: int, layers: tuple[tuple[int, int, int], ...]) -> nn.Sequential:
    modules: list[nn.Module] = []
    for out_channels, kernel, stride in layers:
        modules += [nn.Conv2d(channels, out_channels, kernel, stride), nn.ReLU()]
        channels = out_channels
    return nn.Sequential(*modules)


def _impala_deep(channels: int) -> nn.Sequential:
    """Espeholt et al. 2018, figure 3 right: three sections of 16, 32, 32 channels."""
    modules: list[nn.Module] = []
    for out_channels in (16, 32, 32):
        modules += [
            nn.Conv2d(channels, out_channels, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlock(out_channels),
            ResidualBlock(out_channels),
        ]
        channels = out_channels
    return nn.Sequential(*modules, nn.ReLU())


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x)))), 3 x 3, same size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + self.conv2(functional.relu(self.conv1(functional.relu(inputs))))
