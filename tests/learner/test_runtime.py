"""The learner before it trains: what it tells actors, and when it builds networks."""

import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import torch

from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint
from learner.checkpoints.best import Score
from learner.config.run_config import ActorConfig, LearnerConfig, RunConfig
from learner.config.run_dir import RunDir
from learner.config.torchrun import Place
from learner.reporting.counters import Counters
from learner.reporting.prometheus import PrometheusSink
from learner.runtime import Learner
from learner.training.ranks import Ranks
from seed.env_config import EnvConfig, env_settings_from_json
from seed.pb import inference_pb2 as pb
from seed.security import PLAIN_TEXT
from seed.serialization import unstructure
from seed.specs import EnvSpec
from seed.wire import Episode
from tests.learner.builders import TIMEOUT_S, WatchedLock, env_spec
from tests.learner.serving.support import INVALID, PRECONDITION, SPEC, FakeActor, hello


@pytest.fixture
def learner(tmp_path: Path) -> Iterator[tuple[Learner, str]]:
    """A real learner without an actor, and its address."""
    config = RunConfig(
        env=EnvConfig(env_id="CartPole-v1", env_kwargs='{"sutton_barto_reward": true}'),
        actor=ActorConfig(envs_per_group=3, num_groups=4),
    )
    learner = Learner(config, run_dir=RunDir(tmp_path / "a-run"), device=torch.device("cpu"))
    (address,) = learner.start((f"unix:{tmp_path / 'learner.sock'}",), PLAIN_TEXT)
    yield learner, address
    learner.close()
    assert learner.failure is None


def test_task_tells_an_actor_all_it_needs(learner: tuple[Learner, str]) -> None:
    """The task holds environment, settings and group sizes; seeds differ between actors."""
    served, address = learner
    actors = [FakeActor(address) for _ in range(3)]
    request = pb.GetTaskRequest(protocol_version=1)
    tasks = [actor.stub.GetTask(request, timeout=TIMEOUT_S) for actor in actors]
    task = tasks[0]
    assert (task.protocol_version, task.env_id) == (1, "CartPole-v1")
    assert (task.envs_per_group, task.num_groups) == (3, 4)
    assert env_settings_from_json(task.env_settings_json) == served.config.env
    assert len({each.base_seed for each in tasks}) == 3
    for actor in actors:
        actor.close()


def test_task_is_refused_to_another_version(learner: tuple[Learner, str]) -> None:
    """The refusal comes before the actor has made an environment."""
    actor = FakeActor(learner[1])
    with pytest.raises(grpc.RpcError) as caught:
        actor.stub.GetTask(pb.GetTaskRequest(protocol_version=9), timeout=TIMEOUT_S)
    actor.close()
    assert caught.value.code() is PRECONDITION
    assert caught.value.details() == "protocol_version: expected 1, got 9"


def test_learner_refuses_what_differs_from_its_first_actor(learner: tuple[Learner, str]) -> None:
    """It built its networks for the first; an actor whose spec is impossible is not the first."""
    _, address = learner
    impossible, fitting, other = (FakeActor(address) for _ in range(3))
    spec = env_spec(num_actions=4)
    message = hello(1, spec=spec)
    message.hello.spec.action.num_values = 0
    impossible.send(message)
    code, details = impossible.status()
    assert code is INVALID
    assert details.startswith("action: expected a discrete space, got int64 array")
    fitting.send(hello(1, spec=spec))
    assert fitting.receive().welcome.run_name == "a-run"
    other.send(hello(1, spec=env_spec(num_actions=5)))
    code, details = other.status()
    assert code is PRECONDITION
    assert details == "this run's action.num_values: expected 4, got 5"
    for actor in (impossible, fitting, other):
        actor.close()


def test_log_says_once_what_is_read_and_done_to_rewards(
    learner: tuple[Learner, str], caplog: pytest.LogCaptureFixture
) -> None:
    """Two actors connect; the line also stays above the live view."""
    with caplog.at_level(logging.INFO, "learner.runtime"):
        actors = [FakeActor(learner[1]) for _ in range(2)]
        for actor in actors:
            actor.send(hello(1))
            actor.receive()
    (leaf,) = SPEC.observations
    read = f"{leaf.name}: vector of {leaf.shape[0]} numbers, torso mlp"
    lines = [record for record in caplog.records if record.name == "learner.runtime"]
    assert [record.getMessage() for record in lines] == [read, "rewards: clipped to [-1, 1]"]
    assert lines[0].__dict__["stays"]
    for actor in actors:
        actor.close()


def test_last_report_tells_of_the_time_with_actors(
    learner: tuple[Learner, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All actors are gone by then, and the run has been saved; totals are the newest."""
    served, _ = learner
    now_s = 10.0
    monkeypatch.setattr(Learner, "wall_s", property(lambda _: now_s))
    served.metrics.gauge("actors/connected", 2)
    served.metrics.gauge("envs/connected", 8)
    served.counters.add_env_steps(1000)
    assert served.report()["env_steps_per_s"] == 100
    now_s += 2
    served.counters.add_env_steps(600)
    served.metrics.sum("actors/refused", 1)
    served.end_last_window()
    now_s += 30
    served.counters.add_env_steps(8)
    served.metrics.sum("actors/refused", 1)
    served.metrics.gauge("actors/connected", 0)
    served.metrics.gauge("envs/connected", 0)
    report = served.report()
    assert report["env_steps_per_s"] == 300
    assert (report["actors/connected"], report["envs/connected"]) == (2, 8)
    assert (report["env_steps"], report["wall_s"], report["actors/refused"]) == (1608, 42, 2)


def test_networks_are_built_once_though_their_first_actor_leaves(
    learner: tuple[Learner, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream has ended, the build goes on, and the next actor waits for it."""
    served, address = learner
    building, go_on = threading.Event(), threading.Event()
    built: list[EnvSpec] = []

    def make_agent_slowly(spec: EnvSpec, config: RunConfig) -> Agent:
        built.append(spec)
        building.set()
        assert go_on.wait(TIMEOUT_S)
        return make_agent(spec, config)

    monkeypatch.setattr("learner.runtime.make_agent", make_agent_slowly)
    assert served._service is not None
    monkeypatch.setattr(served._service, "_admission", lock := WatchedLock())
    leaving, staying = FakeActor(address), FakeActor(address)
    leaving.send(hello(3))
    assert building.wait(TIMEOUT_S)
    leaving.close()
    staying.send(hello(2))
    for _ in range(2):
        assert lock.asked.acquire(timeout=TIMEOUT_S)
    go_on.set()
    assert staying.receive().welcome.envs_connected == 2
    assert built == [SPEC]
    staying.close()


def test_counters_of_a_resumed_process_begin_at_none(tmp_path: Path) -> None:
    """The first report, before an actor is back, holds the checkpoint's totals."""
    earlier = Counters()
    earlier.add_env_steps(5_000_000)
    earlier.progress.learner_steps = 9_000
    state = {"counters": earlier.state_dict(), "spec": unstructure(SPEC), "wall_s": 3_600.0}
    resumed = Learner(
        RunConfig(),
        run_dir=RunDir(tmp_path),
        device=torch.device("cpu"),
        checkpoint=Checkpoint(9_000, {}, state, tmp_path),
    )
    sink = PrometheusSink("127.0.0.1", 0)
    try:
        for new_steps in (0, 960):
            resumed.counters.add_env_steps(new_steps)
            sink.write(0, resumed.report())
        values = {sample.name: sample.value for m in sink.collect() for sample in m.samples}
    finally:
        sink.close()
    assert values["seed_env_steps"] == 5_000_960
    assert values["seed_process_env_steps_total"] == 960
    assert values["seed_learner_steps"] == 9_000
    assert values["seed_process_learner_steps_total"] == 0
    assert values["seed_wall_s"] >= 3_600
    assert values["seed_process_wall_s_total"] < 60


class OfferedScores:
    """Takes the place of training, and keeps the scores that it is offered."""

    def __init__(self) -> None:
        self.scores: list[float] = []

    def offer(self, score: Score) -> None:
        """Keeps the score."""
        self.scores.append(score.value)

    def report(self) -> dict[str, float]:
        """Returns no metrics."""
        return {}

    def close(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize(
    ("keep_best", "rank", "scores"), [(True, 0, [2.0]), (False, 0, []), (True, 1, [])]
)
def test_first_rank_offers_its_score_at_each_report(
    tmp_path: Path, keep_best: bool, rank: int, scores: list[float]
) -> None:
    """A hundred games are needed, and an update: weights that were never trained are no best."""
    config = RunConfig(learner=LearnerConfig(keep_best=keep_best))
    ranks = Ranks(Place(rank=rank, size=1 + rank))
    cpu = torch.device("cpu")
    learner = Learner(config, run_dir=RunDir(tmp_path), device=cpu, ranks=ranks)
    learner._training = training = OfferedScores()  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(100):
        learner.report()
        learner.counters.add_episode(Episode(0, 2.0, 5), is_eval=False)
    learner.report()
    learner.counters.progress.learner_steps = 1
    assert training.scores == []
    learner.report()
    assert training.scores == scores
