"""Published weights: the newest version, whole, and never while it is written."""

import multiprocessing
import threading

import pytest
import torch
from torch import nn

from learner.concurrency.stopping import Stopped
from learner.weights import PublishedWeights
from tests.learner.builders import TIMEOUT_S, in_thread


class Network(nn.Module):
    """Parameters and buffers of several sizes, all filled with one number."""

    def __init__(self, number: float = -1.0, size: int = 4) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.empty(size, size)) for _ in range(3))
        self.statistics: torch.Tensor
        self.register_buffer("statistics", torch.empty(size))
        self.fill(number)

    @torch.no_grad()
    def fill(self, number: float) -> None:
        """Writes in place, as an optimiser does."""
        for x in self.state_dict().values():
            x.fill_(number)

    def numbers(self) -> set[float]:
        """Returns every number in its tensors."""
        extremes = [torch.aminmax(x) for x in self.state_dict().values()]
        return {x.item() for extreme in extremes for x in extreme}


def numbers_of(network: nn.Module) -> set[float]:
    """Returns every number in an acquired network."""
    assert isinstance(network, Network)
    return network.numbers()


def test_acquire_gives_the_newest_version_published() -> None:
    """Versions in between are skipped, and a second acquire returns the same one."""
    published = PublishedWeights(Network(), Network())
    for version in (0, 1, 2):
        published.publish(Network(version), version)
    for _ in range(2):
        network, version = published.acquire()
        assert version == 2
        assert numbers_of(network) == {2.0}
    published.publish(Network(3), 3)
    network, version = published.acquire()
    assert version == 3
    assert numbers_of(network) == {3.0}


def test_acquired_network_stays_unchanged_until_the_next_acquire() -> None:
    """This holds for any number of publications while a batch is acted on."""
    published = PublishedWeights(Network(), Network())
    published.publish(Network(0), 0)
    acquired, _ = published.acquire()
    for version in (1, 2, 3):
        published.publish(Network(version), version)
        assert numbers_of(acquired) == {0.0}
    following, version = published.acquire()
    assert version == 3
    assert numbers_of(following) == {3.0}


def test_published_weights_are_a_copy() -> None:
    """The optimiser goes on writing to the trained network."""
    published, trained = PublishedWeights(Network(), Network()), Network(0)
    published.publish(trained, 0)
    trained.fill(99)
    assert numbers_of(published.acquire()[0]) == {0.0}
    trained.fill(1)
    published.publish(trained, 1)
    trained.fill(99)
    assert numbers_of(published.acquire()[0]) == {1.0}


def test_acting_networks_are_in_evaluation_mode() -> None:
    """Acting must not move statistics that training updates."""
    published = PublishedWeights(Network().train(), Network().train())
    for version in (0, 1):
        published.publish(Network(version).train(), version)
        assert not published.acquire()[0].training


def test_publishing_leaves_the_trained_network_as_it_was() -> None:
    """Its gradients and its mode stay, and autograd still tracks it."""
    published, trained = PublishedWeights(Network(), Network()), Network(1).train()
    torch.cat(list(trained.weights)).sum().backward()
    published.publish(trained, 0)
    assert trained.training
    assert all(w.requires_grad and w.grad is not None for w in trained.weights)
    assert trained.numbers() == {1.0}


def test_other_process_acquires_what_this_one_publishes() -> None:
    """Both processes see the same copies, and which of them acts."""
    lock = multiprocessing.get_context("spawn").Lock()
    ours = PublishedWeights(Network(), Network())
    theirs = PublishedWeights.attach(ours.share(lock), lock)
    for version in (0, 1, 2):
        ours.publish(Network(version), version)
        acquired, seen = theirs.acquire()
        assert seen == version
        # The weights go to the other copy, as this one is in use.
        ours.publish(Network(99), version)
        assert numbers_of(acquired) == {version}


def test_lock_of_a_killed_process_blocks_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process was killed while it held the lock."""
    monkeypatch.setattr("learner.weights._LOOK_UP_S", 0.01)
    lock = multiprocessing.get_context("spawn").Lock()
    ours = PublishedWeights(Network(), Network())
    theirs = PublishedWeights.attach(ours.share(lock), lock)
    lock.acquire()
    waiting = in_thread(theirs.acquire)
    theirs.close()
    with pytest.raises(Stopped):
        waiting.result(TIMEOUT_S)


@pytest.mark.parametrize("size", [2, 160])
def test_inference_never_sees_a_mix_of_versions(size: int) -> None:
    """The trainer publishes, and inference reads, as fast as they can."""
    last = 300
    published, trained = PublishedWeights(Network(size=size), Network(size=size)), Network(0, size)
    published.publish(trained, 0)
    started = threading.Event()

    def train() -> None:
        assert started.wait(TIMEOUT_S)
        for version in range(1, last + 1):
            trained.fill(version)
            published.publish(trained, version)

    training, version, seen = in_thread(train), 0, []
    while version < last:
        assert not training.done() or training.exception() is None
        network, version = published.acquire()
        started.set()
        # Read twice: it must not change while it is in use.
        assert numbers_of(network) == numbers_of(network) == {version}
        seen.append(version)
    training.result(TIMEOUT_S)
    assert seen == sorted(seen)
