"""Updates that are not finite are left out and written down, and too many end the run."""

import math
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from learner.agents.base import LossOutput
from learner.config.run_config import OptimizerConfig
from learner.records import Batch, Unrolls
from learner.reporting.metric_table import is_known
from learner.reporting.metrics import Metrics
from learner.training.finite_guard import MAX_DUMPS, FiniteGuard, named_tensors
from learner.training.trainer import Trainer
from seed.errors import NonFiniteLossError
from tests.learner.builders import env_spec, numbered_unrolls, random_unrolls, seeded
from tests.support.fake_agent import FakeAgent


class SteepAgent(FakeAgent):
    """Its loss is w times `slope`, and the priority of its first unroll is `slope`."""

    def __init__(self) -> None:
        self.slope = 1.0
        self.hides_it = False
        self.num_updates = 0

    def build_network(self) -> nn.Linear:
        return nn.Linear(1, 1, bias=False)

    def num_valid(self, unrolls: Unrolls) -> Tensor:
        return torch.tensor(1.0)

    def loss(
        self, network: nn.Module, batch: Batch, num_valid: Tensor, progress: float
    ) -> LossOutput:
        loss = next(network.parameters()).sum() * self.slope
        metric = torch.tensor(0.0) if self.hides_it else loss.detach()
        priorities = torch.tensor([self.slope, 2.0])
        return LossOutput(loss, {"loss/total": metric}, priorities)

    def after_update(self, network: nn.Module, learner_step: int) -> None:
        self.num_updates += 1


class Guarded:
    """A trainer with a guard, and copies of all that an update changes."""

    def __init__(self, directory: Path, *, max_in_a_row: int = 3) -> None:
        self.agent = SteepAgent()
        self.metrics = Metrics()
        self.directory = directory
        guard = FiniteGuard(directory, self.metrics, max_in_a_row=max_in_a_row)
        self.trainer = Trainer(
            self.agent,
            self.agent.build_network(),
            OptimizerConfig(optimizer="adam", learning_rate=0.1, momentum=0.9),
            self.metrics,
            guard=guard,
        )
        self.num_steps = 0

    def step(self, slope: float) -> Tensor | None:
        """Tries one update."""
        self.agent.slope = slope
        self.num_steps += 1
        batch = Batch(numbered_unrolls([0, 1]), importance_weights=torch.ones(2))
        return self.trainer.train_step(batch, learner_step=self.num_steps, progress=0)

    def state(self) -> list[Tensor]:
        """Returns copies of the weights and of the optimiser's averages."""
        optimizer = self.trainer.state_dict()["optimizer"]["state"]
        tensors = [*self.trainer.network.state_dict().values()]
        tensors += [x for state in optimizer.values() for x in state.values()]
        return [x.detach().clone() for x in tensors]

    def dumps(self) -> list[str]:
        """Returns the names of the batches that were written."""
        return sorted(path.name for path in self.directory.glob("*"))


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    """A trainer that ends with the third bad update in a row."""
    return Guarded(tmp_path / "non_finite")


@pytest.mark.parametrize("slope", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("hides_it", [False, True], ids=["loss", "gradient"])
def test_update_that_is_not_finite_leaves_everything_as_it_was(
    guarded: Guarded, slope: float, hides_it: bool
) -> None:
    """Weights and averages stay, and the next good update goes on from them."""
    guarded.step(1.0)
    before = guarded.state()
    guarded.agent.hides_it = hides_it
    guarded.step(slope)
    assert all(map(torch.equal, guarded.state(), before))
    assert guarded.agent.num_updates == 1
    guarded.step(1.0)
    assert not torch.equal(guarded.state()[0], before[0])


def test_bad_updates_are_counted_and_do_not_reach_the_means(guarded: Guarded) -> None:
    """One NaN would make the mean of the whole window NaN."""
    for slope in (1.0, math.nan, math.nan, 1.0):
        guarded.step(slope)
    report = guarded.metrics.drain()
    assert report["loss/non_finite"] == 2
    assert all(math.isfinite(value) for value in report.values())
    assert all(is_known(name) for name in report)


def test_sequences_without_a_finite_loss_lose_their_priority(guarded: Guarded) -> None:
    """Else replay would sample them again and again, or refuse their priorities."""
    priorities = guarded.step(math.inf)
    assert priorities is not None
    assert priorities.tolist() == [0, 2]


def test_run_ends_only_when_bad_updates_come_in_a_row(guarded: Guarded) -> None:
    """The error says what was not finite, how often, and where the batches are."""
    for slope in (math.nan, math.nan, 1.0, math.nan, math.nan):
        guarded.step(slope)
    message = r"^loss: expected finite values, got loss/total nan, .* in 3 updates in a row; .*"
    with pytest.raises(NonFiniteLossError, match=message + str(guarded.directory)):
        guarded.step(math.nan)


def test_batch_is_written_out_to_be_looked_at(guarded: Guarded) -> None:
    """The file holds the whole input of the loss, and its results."""
    guarded.step(math.nan)
    assert guarded.dumps() == ["update-1.safetensors"]
    path = guarded.directory / "update-1.safetensors"
    tensors = safetensors.torch.load_file(path)
    unrolls = numbered_unrolls([0, 1])
    assert torch.equal(tensors["steps/actions"], unrolls.steps.actions)
    assert torch.equal(tensors["steps/rows/rewards"], unrolls.steps.rows.rewards)
    observations = unrolls.steps.rows.observations
    assert torch.equal(tensors["steps/rows/observations/0"], observations[0])
    assert torch.equal(tensors["importance_weights"], torch.ones(2))
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["loss/total"] == "nan"


def test_tensors_are_named_by_their_path() -> None:
    """This includes the tensors of dicts and tuples."""
    state = {"h": torch.zeros(2, 3)}
    unrolls = random_unrolls(env_spec(), 5, 2, state, seeded())
    names = named_tensors(Batch(unrolls)).keys()
    assert names >= {
        "initial_state/h",
        "steps/policy_outputs/logits",
        "steps/rows/observations/0",
    }


def test_only_the_first_batches_are_written_out(tmp_path: Path) -> None:
    """Files of the run before a resume count too."""
    before, after = (Guarded(tmp_path, max_in_a_row=100) for _ in range(2))
    for guarded in (before, after):
        for _ in range(MAX_DUMPS):
            guarded.step(math.nan)
    assert len(after.dumps()) == MAX_DUMPS


def test_batch_that_cannot_be_written_changes_nothing_else(tmp_path: Path) -> None:
    """The disk may be full; here a file stands where the directory must be."""
    (tmp_path / "taken").write_text("")
    guarded = Guarded(tmp_path / "taken")
    before = guarded.state()
    guarded.step(math.nan)
    assert all(map(torch.equal, guarded.state(), before))
