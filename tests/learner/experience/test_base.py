"""What an experience may leave out, and what it gets in its place."""

from pathlib import Path

import pytest

from learner.experience.base import Experience, Sample
from learner.records import Batch, Completed
from tests.learner.builders import numbered_unrolls


class PlainExperience(Experience):
    """Defines only what it must."""

    def put(self, completed: Completed) -> None:
        raise AssertionError("nothing is put")

    def next_batch(self) -> Sample:
        return Sample(Batch(numbered_unrolls([1])))

    def close(self) -> None:
        pass


def test_experience_of_three_methods_is_complete() -> None:
    """By default it reports no metric, saves nothing, and has no threads to start."""
    experience = PlainExperience()
    experience.restore(Path("no such checkpoint"))
    experience.start()
    experience.trained(experience.next_batch(), None)
    assert experience.report() == {}
    assert experience.checkpoint() is None


@pytest.mark.parametrize("name", ["put", "next_batch", "close"])
def test_experience_that_lacks_a_method_cannot_be_built(name: str) -> None:
    """Python names the abstract method that a subclass does not define."""
    unfinished = type("Unfinished", (PlainExperience,), {name: getattr(Experience, name)})
    with pytest.raises(TypeError, match=name):
        unfinished()
