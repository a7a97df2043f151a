"""The order of acting and training, each on a stream of its own.

On a CPU by clocks that know what is certain to be done before what; on a GPU for real.
"""

import random

import pytest
import torch
from torch import nn

from learner.device.streams import NoStreams, make_streams
from learner.weights import PublishedWeights
from tests.support.clocked_streams import ClockedStreams

NO_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def network(size: int = 2) -> nn.Linear:
    """Returns a network whose weights are all 0."""
    linear = nn.Linear(size, size)
    for parameter in linear.parameters():
        nn.init.zeros_(parameter)
    return linear


def test_cpu_has_no_streams() -> None:
    """On a CPU no call to the device is made beyond the plain ones."""
    streams = make_streams(torch.device("cpu"))
    assert isinstance(streams, NoStreams)
    with streams.acting():
        streams.fence().wait()
        streams.give_to_training(iter(()))


@pytest.mark.parametrize("rng_seed", range(20))
def test_weights_are_written_and_read_in_turn(rng_seed: int) -> None:
    """A forward follows the writing of its weights, and comes before they are written again."""
    rng, streams = random.Random(rng_seed), ClockedStreams()
    weights = PublishedWeights(network(), network(), streams)
    trained = network()
    written: dict[int, tuple[str, int]] = {}
    read: dict[int, list[tuple[str, int]]] = {id(n): [] for n in weights.copies.networks}

    def publish(version: int) -> None:
        before = weights.copies.versions.clone()
        streams.work()
        weights.publish(trained, version)
        (index,) = (weights.copies.versions != before).nonzero().flatten().tolist()
        held = id(weights.copies.networks[index])
        assert all(streams.is_done(piece) for piece in read[held])
        written[held] = ("training", streams.clock["training"])

    publish(0)
    for version in range(1, 200):
        if rng.random() < 0.5:
            publish(version)
            continue
        with streams.acting():
            acquired, _ = weights.acquire()
            assert streams.is_done(written[id(acquired)])
            read[id(acquired)].append(streams.work())


@pytest.mark.gpu
@NO_CUDA
def test_gpu_forwards_see_one_version_each() -> None:
    """Both sides queue work as fast as they can, on a slow device."""
    device = torch.device("cuda")
    streams = make_streams(device)
    size = 256
    weights = PublishedWeights(network(size).to(device), network(size).to(device), streams)
    trained, seen = network(size).to(device), []
    for version in range(60):
        with torch.no_grad():
            torch.cuda._sleep(100_000)
            for parameter in trained.parameters():
                parameter.fill_(version)
        weights.publish(trained, version)
        if version % 3:
            with streams.acting(), torch.no_grad():
                torch.cuda._sleep(100_000)
                acquired, number = weights.acquire()
                for _ in range(3):
                    flat = torch.cat([p.flatten() for p in acquired.parameters()])
                    seen.append((number, torch.stack(torch.aminmax(flat))))
    torch.cuda.synchronize()
    for number, extremes in seen:
        assert extremes.tolist() == [number, number]


@pytest.mark.gpu
@NO_CUDA
def test_gpu_keeps_what_is_given_to_training() -> None:
    """The tensors are dropped at once, and acting goes on making tensors of their size."""
    device = torch.device("cuda")
    streams, sums = make_streams(device), []
    for number in range(50):
        with streams.acting():
            torch.cuda._sleep(100_000)
            given = torch.full((1 << 20,), float(number), device=device)
            streams.give_to_training([given])
        torch.cuda._sleep(1_000_000)
        sums.append(torch.stack(torch.aminmax(given)))
        del given
        with streams.acting():
            torch.full((1 << 20,), -1.0, device=device)
    torch.cuda.synchronize()
    assert [x.tolist() for x in sums] == [[n, n] for n in range(50)]
