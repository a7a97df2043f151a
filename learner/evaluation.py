"""`seed eval`: greedy full games from a checkpoint, without training.

Leaves what is printed to `evaluation_results.py`.

The same server, batcher and inference as in training serve one local evaluation
actor. Runs in the main thread of `seed eval`.
"""

import dataclasses
import threading

import torch

from learner.acting.batcher import Batcher
from learner.acting.inference_thread import InferenceThread
from learner.acting.observers import ObservedStep
from learner.agents.base import Agent
from learner.agents.registry import make_agent
from learner.concurrency.stop_request import StopRequest
from learner.config.args import EvalArgs
from learner.config.run_config import ActorConfig
from learner.device.setup import set_up_torch
from learner.device.streams import make_streams
from learner.evaluation_results import ProgressLines, print_results
from learner.loaded_run import LoadedRun, load_run, load_weights
from learner.local_actors import LocalActors
from learner.records import Completed
from learner.reporting.metrics import Metrics
from learner.service import Service, ServingConfig
from learner.serving.task import make_task
from learner.weights import PublishedWeights
from seed.pb import inference_pb2 as pb
from seed.serialization import structure
from seed.specs import EnvSpec
from seed.wire import Episode

_TICK_S = 0.5


class EpisodeQuota:
    """Collects a set number of games, split evenly over the environments.

    A choice of the games that end first would favour short games. Called by the inference
    thread; the main thread reads the games once `complete` is set.
    """

    def __init__(self, num_episodes: int, num_envs: int) -> None:
        share, rest = divmod(num_episodes, num_envs)
        self._left = [share + (env < rest) for env in range(num_envs)]
        self.episodes: list[Episode] = []
        self.complete = threading.Event()

    def add_env_steps(self, count: int) -> None:
        """Does nothing: only full games count."""

    def add_episode(self, episode: Episode, *, is_eval: bool) -> None:
        """Keeps the game if its environment has games left to play."""
        del is_eval  # all games are evaluation games here
        if not self._left[episode.env]:
            return
        self._left[episode.env] -= 1
        self.episodes.append(episode)
        if not any(self._left):
            self.complete.set()


class StepCount:
    """Counts the env steps of an evaluation, which no report holds. See `StepObserver`."""

    def __init__(self) -> None:
        self.env_steps = 0

    def observe(self, step: ObservedStep) -> None:
        """Counts the rows that followed an action."""
        self.env_steps += len(step.slots) - int(step.steps.rows.is_first.sum())

    def close(self) -> None:
        """Does nothing."""


class FixedWeights:
    """Takes the place of training: weights that never change. See `TrainingEnd`."""

    def __init__(self, agent: Agent, run: LoadedRun, device: torch.device) -> None:
        """Loads the acting weights from the run's checkpoint.

        Raises:
          CheckpointError: it holds the weights of another network.
        """
        network = agent.build_network()
        load_weights(network, run)
        copies = [agent.acting_part(agent.build_network()).to(device) for _ in range(2)]
        self.weights = PublishedWeights(copies[0], copies[1], make_streams(device))
        self.weights.publish(agent.acting_part(network), run.checkpoint.learner_step)

    def put(self, completed: Completed) -> None:
        """Is never called: evaluation actors' steps are not stored."""
        raise AssertionError("evaluation actors' steps are never stored")

    def stop(self) -> None:
        """Does nothing: no thread waits."""


class Evaluation:
    """Serves greedy actions from fixed weights, from `start` to `close`."""

    def __init__(
        self,
        run: LoadedRun,
        quota: EpisodeQuota,
        *,
        device: torch.device,
        num_envs: int,
        rng_seed: int,
    ) -> None:
        self.failure: BaseException | None = None
        self.steps = StepCount()
        self._run = run
        self._config = run.config
        self._quota = quota
        self._device = device
        self._num_envs = num_envs
        self._rng_seed = rng_seed
        self._metrics = Metrics()
        self._service = Service(
            ServingConfig(inference=self._config.inference),
            name="evaluation",
            make_task=self._make_task,
            build=self._build,
            on_failure=self.fail,
            metrics=self._metrics,
            spec=structure(run.checkpoint.state["spec"], EnvSpec),
        )

    def start(self, address: str) -> None:
        """Starts serving on `address`."""
        self._service.start((address,))

    def fail(self, error: BaseException) -> None:
        """Ends the evaluation because a thread raised `error`."""
        self.failure = self.failure or error
        self._quota.complete.set()

    def close(self) -> None:
        """Stops serving."""
        self._service.close()

    def _make_task(self) -> pb.Task:
        actor = ActorConfig(envs_per_group=self._num_envs, num_groups=1)
        return make_task(self._config.env, actor, base_seed=self._rng_seed)

    def _build(self, spec: EnvSpec, batcher: Batcher) -> InferenceThread:
        agent = make_agent(spec, self._config)
        return InferenceThread(
            spec=spec,
            agent=agent,
            config=self._config.inference,
            training=FixedWeights(agent, self._run, self._device),
            batcher=batcher,
            counters=self._quota,
            metrics=self._metrics,
            device=self._device,
            rng_seed=self._rng_seed,
            on_failure=self.fail,
            observers=(self.steps,),
        )


def run_evaluation(args: EvalArgs, actors: LocalActors) -> int:
    """Plays `args.episodes` games and prints their returns; returns the exit code.

    Returns 1 after SIGTERM or Ctrl-C; the games that had ended by then are printed.

    Raises:
      SeedError: the run cannot be read, or its environment cannot be made on this machine.
    """
    stop = StopRequest()
    run = _with_limit(load_run(args.run, args.checkpoint), args.max_episode_steps)
    device = set_up_torch(args.device, torch_threads=0)
    num_envs = args.num_envs_used
    quota = EpisodeQuota(args.episodes, num_envs)
    evaluation = Evaluation(run, quota, device=device, num_envs=num_envs, rng_seed=args.rng_seed)
    progress = ProgressLines(args.episodes)
    evaluation.start(actors.address)
    try:
        actors.start()
        while not quota.complete.wait(_TICK_S) and not stop.requested:
            actors.check()
            progress.say_if_due(len(quota.episodes), evaluation.steps.env_steps)
    finally:
        actors.close()
        evaluation.close()
    if evaluation.failure is not None:
        raise evaluation.failure
    print_results(args, run.checkpoint, quota.episodes)
    return 0 if len(quota.episodes) == args.episodes else 1


def _with_limit(run: LoadedRun, max_episode_steps: int | None) -> LoadedRun:
    """Returns the run with another time limit for its episodes; None keeps its own."""
    if max_episode_steps is None:
        return run
    env = dataclasses.replace(run.config.env, max_episode_steps=max_episode_steps)
    return run._replace(config=dataclasses.replace(run.config, env=env))
