"""Torsos, each of which reads one observation leaf: [N, S, *shape] -> features [N, F].

S is the frame stack. The leaf's spec and the config choose the torso; the networks in
this package put recurrence and heads behind it.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from learner.config.run_config import NetworkConfig
from learner.networks.base import Torso, class_of_torso
from learner.networks.image_layout import Picture, picture_of
from seed.errors import SpecError, expected
from seed.specs import ArraySpec

# "auto" chooses a strided Atari network for images at least this high and wide.
LARGE_IMAGE_PIXELS = 36

# "auto" reads images as vectors if they are smaller than small_conv's kernel.
SMALL_IMAGE_PIXELS = 3

# Bytes of floats that a CPU converts and scales at a time, so that they stay in its cache.
_BYTES_IN_CACHE = 2 << 20


def make_torso(leaf: ArraySpec, config: NetworkConfig) -> Torso:
    """Returns the torso for `leaf`; raises SpecError if `config.torso` cannot read it."""
    if cls := class_of_torso(config.torso):
        assert issubclass(cls, Torso), "make_core builds a core of another package"
        return cls(leaf, config)
    kind, picture = choose_torso(leaf, config)
    if picture is None:
        return MLPTorso(leaf, config.frame_stack, config.hidden_sizes)
    image = ImageInput(leaf, picture, config.frame_stack, center=config.center_images)
    if kind == "impala_deep":
        return ConvTorso(image, _impala_deep(image.channels), dense_size=256)
    layers, dense_size = _CONV_STACKS[kind]
    torso = ConvTorso(image, _plain_convs(image.channels, layers), dense_size=dense_size)
    initialize(torso)
    return torso


def choose_torso(leaf: ArraySpec, config: NetworkConfig) -> tuple[str, Picture | None]:
    """Returns the name of the built-in torso for `leaf`, and the image that it reads, if any."""
    picture = picture_of(leaf, config)
    if picture is None or config.torso == "mlp":
        return "mlp", None
    if config.torso != "auto":
        return config.torso, picture
    side = min(picture.height, picture.width)
    if side < SMALL_IMAGE_PIXELS:
        return "mlp", None
    return "impala_shallow" if side >= LARGE_IMAGE_PIXELS else "small_conv", picture


def initialize(module: nn.Module, gain: float = math.sqrt(2)) -> None:
    """Makes the linear and convolution weights below `module` orthogonal, biases zero.

    The default gain keeps the variance through a ReLU (Saxe et al. 2014). The
    residual network keeps PyTorch's own initialisation, as in the published runs.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.orthogonal_(layer.weight, gain)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


def lay_out(network: nn.Module, *, channels_last: bool) -> nn.Module:
    """Lays out convolution weights in memory; torsos lay out their images likewise.

    Values and names stay as they are. Channels last takes a tenth off an update on a CPU;
    on GPUs, tensor cores read that layout.
    """
    layout = torch.channels_last if channels_last else torch.contiguous_format
    for parameter in network.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=layout)
    return network


def compile_torsos(network: nn.Module) -> None:
    """Compiles the torsos below `network` in place, when they are first called.

    The layers behind them are not compiled: the LSTM runs from one start of an episode to the
    next, which is another number of rows in every batch. In a core of another package only
    the torsos are compiled.
    """
    for module in network.modules():
        if isinstance(module, Torso):
            module.compile()


class ImageInput(nn.Module):
    """Stacked images of any layout -> float32 [N, C, H, W].

    Bytes are scaled to [0, 1]; centred ones become (x - mean) / 128.
    """

    def __init__(
        self, leaf: ArraySpec, picture: Picture, frame_stack: int, *, center: bool
    ) -> None:
        super().__init__()
        self.height, self.width = picture.height, picture.width
        self.channels_last = picture.channels_last
        self.channels = frame_stack * picture.channels
        is_bytes = leaf.dtype == "uint8"
        self.scale = (1 / 128 if center else 1 / 255) if is_bytes else 1.0
        self.frame_shape = (picture.channels, self.height, self.width)
        self.center = RunningMean(self.frame_shape) if center else None

    def forward(self, frames: Tensor, *, channels_last: bool = False) -> Tensor:
        """Reads frames [N, S, *shape]; `channels_last` is about the images' memory."""
        images = self._channels_first(frames)
        order = (0, 3, 4, 1, 2) if channels_last else (0, 1, 2, 3, 4)  # each its own inverse
        pixels = images.permute(order)
        # Frames may be overlapping windows of one stack; with `out` the result is not.
        out = torch.empty(pixels.shape, device=pixels.device)
        offset = None
        if self.center is not None:
            offset = (self.center.mean * -self.scale).expand_as(images[:1])
            offset = offset.permute(order).contiguous()
        if pixels.is_cuda or torch.compiler.is_compiling():
            # A GPU does all of it in one pass, and so does compiled code.
            self._scale(pixels, offset, out)
        else:
            self._scale_in_parts(pixels, offset, out, frame_axis=order.index(1))
        return out.permute(order).flatten(1, 2)

    def _scale_in_parts(
        self, pixels: Tensor, offset: Tensor | None, out: Tensor, *, frame_axis: int
    ) -> None:
        """Does the same as `_scale`, faster on a CPU: one pass would read bytes one by one
        where their order changes."""
        rows = max(1, _BYTES_IN_CACHE // (4 * pixels.shape[1:].numel()))
        for part, source in zip(out.split(rows), pixels.split(rows), strict=True):
            frames = zip(part.unbind(frame_axis), source.unbind(frame_axis), strict=True)
            for to, frame in frames:
                to.copy_(frame)
            self._scale(part, offset, part)

    def _scale(self, pixels: Tensor, offset: Tensor | None, out: Tensor) -> None:
        if offset is None:
            torch.mul(pixels, self.scale, out=out)
        else:
            torch.add(offset, pixels, alpha=self.scale, out=out)

    def update_statistics(self, frames: Tensor) -> None:
        """Updates the running mean from unstacked frames [N, *shape]."""
        if self.center is not None:
            self.center.update(self._channels_first(frames.unsqueeze(1)).squeeze(1))

    def _channels_first(self, frames: Tensor) -> Tensor:
        """Returns [N, S, C, H, W], C being the channels of one frame."""
        if self.channels_last:
            frames = frames.movedim(-1, -3)
        return frames.reshape(len(frames), -1, *self.frame_shape)


class RunningMean(nn.Module):
    """The mean of all frames given to `update`, element by element.

    It is a buffer: it is published and saved with the weights, so that acting and training
    use the same mean. All frames weigh the same, so it moves less and less.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.mean: Tensor
        self.count: Tensor
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("count", torch.zeros(()))

    @torch.no_grad()
    def update(self, frames: Tensor) -> None:
        """Adds frames [N, *shape] to the mean."""
        self.count += len(frames)
        batch_mean = frames.to(torch.float32).mean(0)
        self.mean += (batch_mean - self.mean) * (len(frames) / self.count)


class MLPTorso(Torso):
    """Fully connected layers with ReLU over a flattened (or one-hot) leaf.

    Bytes are scaled to [0, 1].
    """

    def __init__(self, leaf: ArraySpec, frame_stack: int, hidden_sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.num_values = leaf.num_values
        self.scale = 1 / 255 if leaf.dtype == "uint8" else 1.0
        size = frame_stack * (leaf.num_values or math.prod(leaf.shape))
        layers: list[nn.Module] = []
        for hidden_size in hidden_sizes:
            layers += [nn.Linear(size, hidden_size), nn.ReLU()]
            size = hidden_size
        self.layers = nn.Sequential(*layers)
        self.output_size = size
        initialize(self.layers)

    def forward(self, values: Tensor) -> Tensor:
        if self.num_values:
            values = functional.one_hot(values.long(), self.num_values)
        return self.layers(values.flatten(1).to(torch.float32) * self.scale)


class ConvTorso(Torso):
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

    def update_statistics(self, frames: Tensor) -> None:
        self.image.update_statistics(frames)

    def forward(self, frames: Tensor) -> Tensor:
        images = self.image(frames, channels_last=self._weights_are_channels_last())
        return functional.relu(self.dense(self.convs(images).flatten(1)))

    def _weights_are_channels_last(self) -> bool:
        # Images laid out otherwise than the weights would be converted, twice in training.
        first = self.convs[0]
        assert isinstance(first, nn.Conv2d)
        return first.weight.is_contiguous(memory_format=torch.channels_last)


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
        modules += [nn.Conv2d(channels, out_channels, kernel, stride), nn.ReLU(inplace=True)]
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
