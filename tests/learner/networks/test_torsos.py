"""Which network reads which observation, and how images are laid out and scaled."""

import pytest
import torch
from torch import nn

from learner.config.run_config import TORSOS, NetworkConfig
from learner.networks.image_layout import picture_of
from learner.networks.torsos import ConvTorso, ImageInput, MLPTorso, lay_out, make_torso
from seed.errors import SpecError
from seed.specs import ArraySpec
from tests.learner.builders import random_leaf, seeded


def leaf(dtype: str, *shape: int, num_values: int = 0) -> ArraySpec:
    """Returns the spec of one observation."""
    return ArraySpec(name="observation", dtype=dtype, shape=shape, num_values=num_values)


READABLE = {
    "vector": leaf("float32", 7),
    "float64": leaf("float64", 7),
    "float16": leaf("float16", 7),
    "scalar": leaf("float32"),
    "int_vector": leaf("int32", 3),
    "bool_vector": leaf("bool", 3),
    "discrete": leaf("int64", num_values=6),
    "HW": leaf("uint8", 12, 11),
    "HWC": leaf("uint8", 12, 11, 3),
    "CHW": leaf("uint8", 3, 12, 11),
    "planes_first": leaf("uint8", 12, 8, 8),
    "FHWC": leaf("uint8", 2, 12, 11, 3),
    "bool_planes": leaf("bool", 10, 10, 4),
    "float_image": leaf("float32", 12, 11),
    "four_axes": leaf("float32", 2, 2, 2, 2),
    "Catch": leaf("uint8", 10, 5),
    "Atari": leaf("uint8", 84, 84),
    "Atari_colour": leaf("uint8", 84, 84, 3),
}


@pytest.mark.parametrize("frame_stack", [1, 3])
@pytest.mark.parametrize("name", READABLE)
def test_auto_reads_every_kind_of_leaf(name: str, frame_stack: int) -> None:
    """Outputs are float32 [N, output_size], finite, and differ for different inputs."""
    spec, config = READABLE[name], NetworkConfig(frame_stack=frame_stack)
    torso = make_torso(spec, config)
    frames = random_leaf(spec, (6, frame_stack), seeded())
    features = torso(frames)
    assert features.shape == (6, torso.output_size)
    assert features.dtype == torch.float32
    assert features.isfinite().all()
    assert len(features.unique(dim=0)) > 1


@pytest.mark.parametrize("kind", TORSOS.built_in)
def test_every_torso_reads_an_atari_screen(kind: str) -> None:
    """The screen is four frames of 84 x 84 bytes."""
    spec = leaf("uint8", 84, 84)
    config = NetworkConfig(torso=kind, frame_stack=4, hidden_sizes=(8,))
    torso = make_torso(spec, config)
    assert torso(random_leaf(spec, (2, 4), seeded())).shape == (2, torso.output_size)


def kernels(torso: nn.Module) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Returns (output channels, kernel, stride) of every convolution."""
    return [
        (m.out_channels, tuple(m.kernel_size), tuple(m.stride))
        for m in torso.modules()
        if isinstance(m, nn.Conv2d)
    ]


@pytest.mark.parametrize(
    ("kind", "expected", "dense"),
    [
        ("impala_shallow", [(16, (8, 8), (4, 4)), (32, (4, 4), (2, 2))], 256),
        ("nature", [(32, (8, 8), (4, 4)), (64, (4, 4), (2, 2)), (64, (3, 3), (1, 1))], 512),
        ("impala_deep", [(c, (3, 3), (1, 1)) for c in (16, 32, 32) for _ in range(5)], 256),
    ],
)
def test_published_networks_have_their_published_layers(
    kind: str,
    expected: list[tuple[int, tuple[int, ...], tuple[int, ...]]],
    dense: int,
) -> None:
    """The layers are those of Mnih et al. 2015, and of Espeholt et al. 2018, figure 3."""
    torso = make_torso(leaf("uint8", 84, 84), NetworkConfig(torso=kind, frame_stack=4))
    assert kernels(torso) == expected
    assert torso.output_size == dense


def test_impala_deep_shrinks_the_screen_threefold() -> None:
    """84 -> 42 -> 21 -> 11 gives the published 3,872 features into the dense layer."""
    torso = make_torso(leaf("uint8", 84, 84), NetworkConfig(torso="impala_deep"))
    assert isinstance(torso, ConvTorso)
    assert torso.dense.in_features == 32 * 11 * 11


def image_input(spec: ArraySpec, frame_stack: int, *, center: bool = False) -> ImageInput:
    """Returns the reader of an image."""
    picture = picture_of(spec, NetworkConfig())
    assert picture is not None
    return ImageInput(spec, picture, frame_stack, center=center)


def plane_of(name: str, frames: torch.Tensor, frame: int, colour: int) -> torch.Tensor:
    """Returns one colour [N, H, W] of one frame of a stack."""
    if name == "CHW":
        return frames[:, frame, colour]
    if name == "FHWC":
        return frames[:, frame, colour // 3, ..., colour % 3]
    return frames[:, frame] if frames.ndim == 4 else frames[:, frame, ..., colour]


@pytest.mark.parametrize(
    ("name", "colours"),
    [("HW", 1), ("HWC", 3), ("CHW", 3), ("bool_planes", 4), ("Atari", 1), ("FHWC", 6)],
)
def test_frames_and_colours_become_channels(name: str, colours: int) -> None:
    """In a stack of 2 the newest frame is last, colours stay together, and pixels in place."""
    spec = READABLE[name]
    image = image_input(spec, 2)
    frames = random_leaf(spec, (3, 2), seeded())
    got = image(frames)
    assert image.channels == got.shape[1] == 2 * colours
    scale = 255 if spec.dtype == "uint8" else 1
    for frame in range(2):
        for colour in range(colours):
            wanted = plane_of(name, frames, frame, colour).to(torch.float32) / scale
            torch.testing.assert_close(got[:, frame * colours + colour], wanted)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", ["HW", "HWC", "CHW"])
def test_images_are_laid_out_as_asked_for(name: str, center: bool) -> None:
    """Both layouts give the same numbers, also with overlapping windows."""
    spec = READABLE[name]
    image = image_input(spec, 2, center=center)
    history = random_leaf(spec, (4,), seeded())
    image.update_statistics(history)
    windows = history.unfold(0, 2, 1).movedim(-1, 1)
    plain = image(windows)
    channels_last = image(windows, channels_last=True)
    assert torch.equal(plain, channels_last)
    assert plain.is_contiguous()
    assert channels_last.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_many_images_are_read_as_one_at_a_time(center: bool, channels_last: bool) -> None:
    """A CPU reads them in parts, here of 18, 18 and 4."""
    spec = leaf("uint8", 84, 84)
    image = image_input(spec, 4, center=center)
    frames = random_leaf(spec, (40, 4), seeded())
    image.update_statistics(frames[:, 0])
    one_by_one = [image(frame, channels_last=channels_last) for frame in frames.split(1)]
    assert torch.equal(image(frames, channels_last=channels_last), torch.cat(one_by_one))


def test_images_follow_the_layout_of_the_weights() -> None:
    """Else every convolution of an update would first convert its input."""
    torso = make_torso(READABLE["Atari"], NetworkConfig(torso="impala_shallow", frame_stack=4))
    assert isinstance(torso, ConvTorso)
    layouts = []
    torso.convs.register_forward_pre_hook(lambda _, args: layouts.append(args[0].stride(1)))
    frames = torch.zeros(2, 4, 84, 84, dtype=torch.uint8)
    torso(frames)
    lay_out(torso, channels_last=True)
    torso(frames)
    lay_out(torso, channels_last=False)
    torso(frames)
    assert layouts == [84 * 84, 1, 84 * 84]


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [("uint8", 255, 1.0), ("uint8", 51, 0.2), ("float32", 51, 51.0), ("bool", 1, 1.0)],
)
def test_only_bytes_are_scaled(dtype: str, value: int, expected: float) -> None:
    """Bytes of images and vectors are scaled to [0, 1], and other dtypes stay as they are."""
    image = image_input(leaf(dtype, 4, 5, 1), 1)
    frames = torch.full((1, 1, 4, 5, 1), value).to(getattr(torch, dtype))
    assert image(frames).unique().tolist() == pytest.approx([expected])
    mlp = MLPTorso(leaf(dtype, 4), 1, (8,))
    vector = torch.full((1, 1, 4), value).to(getattr(torch, dtype))
    torch.testing.assert_close(mlp(vector), mlp.layers(torch.full((1, 4), expected)))


@pytest.mark.parametrize("center", [False, True])
def test_reading_an_image_leaves_it_unchanged(center: bool) -> None:
    """The golden check reads the stored unroll again."""
    for dtype in ("float32", "uint8"):
        spec = leaf(dtype, 4, 5, 3)
        frames = random_leaf(spec, (3, 2), seeded())
        before = frames.clone()
        image_input(spec, 2, center=center)(frames)
        assert torch.equal(frames, before)


def test_discrete_values_are_one_hot() -> None:
    """The values have no order; each frame of a stack has its own one-hot part."""
    torso = MLPTorso(leaf("int64", num_values=3), 2, (4,))
    first = torso.layers[0]
    assert isinstance(first, nn.Linear)
    assert first.in_features == 6
    one_hot = torch.tensor([[0.0, 0, 1, 1, 0, 0]])
    expected = torso.layers(one_hot)
    torch.testing.assert_close(torso(torch.tensor([[2, 0]])), expected)


def test_mlp_has_the_layers_asked_for() -> None:
    """There is a ReLU behind each layer."""
    torso = make_torso(leaf("float32", 4), NetworkConfig(hidden_sizes=(7, 5), frame_stack=3))
    assert isinstance(torso, MLPTorso)
    sizes = [(m.in_features, m.out_features) for m in torso.layers if isinstance(m, nn.Linear)]
    assert sizes == [(12, 7), (7, 5)]
    assert (torso(torch.randn(50, 3, 4, generator=seeded())) >= 0).all()


def test_auto_chooses_by_the_size_of_the_image() -> None:
    """Strides of 4 and 2 would shrink a small image to nothing."""
    small = make_torso(leaf("uint8", 10, 10, 3), NetworkConfig())
    assert kernels(small) == [(16, (3, 3), (1, 1))]
    assert kernels(make_torso(leaf("uint8", 36, 40), NetworkConfig()))[0][1] == (8, 8)
    assert kernels(make_torso(leaf("uint8", 35, 84), NetworkConfig()))[0][1] == (3, 3)
    assert kernels(make_torso(leaf("float32", 1, 5), NetworkConfig())) == []
    assert kernels(make_torso(leaf("bool", 2, 7, 3), NetworkConfig())) == []


def test_convolutional_torso_leaves_vectors_to_the_mlp() -> None:
    """An observation with an image and a vector uses both torsos."""
    config = NetworkConfig(torso="impala_shallow", hidden_sizes=(9,))
    assert make_torso(leaf("float32", 4), config).output_size == 9


@pytest.mark.parametrize("kind", ["impala_shallow", "nature"])
@pytest.mark.parametrize("shape", [(10, 5), (84, 7), (4, 4, 3)])
def test_image_too_small_for_the_kernels_is_refused(kind: str, shape: tuple[int, ...]) -> None:
    """The error tells the size, so that the user knows what to change."""
    with pytest.raises(SpecError, match=rf"torso: expected .* got {shape[0]} x {shape[1]} pixels"):
        make_torso(leaf("uint8", *shape), NetworkConfig(torso=kind))


def test_centred_pixels_lose_their_running_mean() -> None:
    """Pixels become (x - mean) / 128, the mean over all frames so far, in any layout."""
    generator = seeded()
    for shape, channels_first in (((6, 5), (0, 1)), ((6, 5, 3), (2, 0, 1))):
        spec = leaf("uint8", *shape)
        image = image_input(spec, 2, center=True)
        batches = [random_leaf(spec, (n,), generator) for n in (3, 8, 1)]
        for batch in batches:
            image.update_statistics(batch)
        mean = torch.cat(batches).double().mean(0)
        frames = random_leaf(spec, (6, 2), generator)
        centred = (frames.double() - mean) / 128
        expected = centred.permute(0, 1, *(2 + axis for axis in channels_first)).reshape(
            6, image.channels, 6, 5
        )
        torch.testing.assert_close(image(frames).double(), expected, atol=1e-5, rtol=0)


def test_reading_does_not_move_the_running_mean() -> None:
    """Acting and training must use the same mean, in training and in evaluation mode."""
    torso = make_torso(leaf("uint8", 5, 6), NetworkConfig(center_images=True))
    torso.update_statistics(torch.ones(4, 5, 6, dtype=torch.uint8))
    before = {name: x.clone() for name, x in torso.named_buffers()}
    for training in (True, False):
        torso.train(training)(torch.full((4, 1, 5, 6), 50, dtype=torch.uint8))
    assert all(torch.equal(x, before[name]) for name, x in torso.named_buffers())
    assert before["image.center.mean"].unique().tolist() == [1.0]
    assert before["image.center.count"].item() == 4


def test_torsos_without_a_mean_ignore_statistics() -> None:
    """This holds for vectors, and for images that are not centred."""
    for spec, config in (
        (leaf("float32", 4), NetworkConfig(center_images=True)),
        (leaf("uint8", 9, 9), NetworkConfig()),
    ):
        torso = make_torso(spec, config)
        torso.update_statistics(random_leaf(spec, (3,), seeded()))
        assert not list(torso.buffers())
