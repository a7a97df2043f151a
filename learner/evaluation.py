"""`seed eval`: greedy full games from a checkpoint, with nothing trained.

The same server, batcher and inference as in training serve one local evaluation
actor. Runs in the main thread of `seed eval`.
"""

import json
import statistics
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from learner.acting.batcher import Batcher
from learner.acting.inference import InferenceEngine, run_inference
from learner.agents.registry import make_agent
from learner.checkpoint import Checkpoint, load_checkpoint
from learner.concurrency.stop_request import StopRequest
from learner.concurrency.threads import start_thread
from learner.config.args import EvalArgs
from learner.config.config_file import load_config
from learner.config.run_config import ActorConfig, RunConfig
from learner.device.setup import set_up_torch
from learner.local_actors import LocalActors
from learner.reporting.metrics import Metrics
from learner.serving.factory import make_server
from learner.serving.reception import Reception
from learner.serving.server import check_same_environment
from learner.serving.task import make_task
from learner.weights import PublishedWeights
from seed.errors import ConfigError, expected
from seed.pb import inference_pb2 as pb
from seed.serialization import structure
from seed.specs import EnvSpec
from seed.wire import Episode

_TICK_S = 0.5


class EpisodeQuota:
    """Collects a set number of games, split evenly over the environments.

    Taking whichever games end first would favour short ones. Called by the
    inference thread, read by the main thread once `complete` is set.
    """

    def __init__(self, num_episodes: int, num_envs: int) -> None:
        share, rest = divmod(num_episodes, num_envs)
        self._left = [share + (env < rest) for env in range(num_envs)]
        self.episodes: list[Episode] = []
        self.complete = threading.Event()

    def add_env_steps(self, count: int) -> None:
        """Takes no notice: only whole games count."""

    def add_episode(self, episode: Episode, *, is_eval: bool) -> None:
        """Keeps the game if its environment still owes one."""
        del is_eval  # all are
        if not self._left[episode.env]:
            return
        self._left[episode.env] -= 1
        self.episodes.append(episode)
        if not any(self._left):
            self.complete.set()


class Evaluation:
    """Serves greedy actions from fixed weights, from `start` to `close`."""

    def __init__(
        self,
        config: RunConfig,
        checkpoint: Checkpoint,
        quota: EpisodeQuota,
        *,
        device: torch.device,
        num_envs: int,
        rng_seed: int,
    ) -> None:
        self.failure: BaseException | None = None
        self._config = config
        self._num_envs = num_envs
        self._rng_seed = rng_seed
        self._quota = quota
        self._spec = structure(checkpoint.state["spec"], EnvSpec)
        self._batcher = Batcher(config.inference)
        self._metrics = Metrics()
        agent = make_agent(self._spec, config)
        network = agent.build_network().to(device)
        network.load_state_dict(checkpoint.weights)
        copies = [agent.build_network().to(device) for _ in range(2)]
        weights = PublishedWeights(copies[0], copies[1])
        weights.publish(network, checkpoint.learner_step)
        self._engine = InferenceEngine(
            spec=self._spec,
            agent=agent,
            weights=weights,
            emit=_refuse_unrolls,
            counters=quota,
            metrics=self._metrics,
            device=device,
            generator=torch.Generator(device).manual_seed(rng_seed),
        )

    def start(self, address: str) -> None:
        """Begins to serve on `address`."""
        reception = Reception(
            make_task=self._make_task,
            admit=self._admit,
            batcher=self._batcher,
            metrics=self._metrics,
        )
        self._server = make_server(reception, (address,), self.fail)
        self._server.start()
        self._thread = start_thread(
            "inference",
            lambda: run_inference(self._batcher, self._engine, self._metrics),
            self.fail,
        )

    def fail(self, error: BaseException) -> None:
        """Ends the evaluation because a thread raised `error`."""
        self.failure = self.failure or error
        self._quota.complete.set()

    def close(self) -> None:
        """Stops serving."""
        self._server.close()
        self._batcher.close()
        self._thread.join()

    def _make_task(self) -> pb.Task:
        actor = ActorConfig(envs_per_group=self._num_envs, num_groups=1)
        return make_task(self._config.env, actor, base_seed=self._rng_seed)

    def _admit(self, spec: EnvSpec) -> str:
        check_same_environment(self._spec, spec)
        return "evaluation"


def _refuse_unrolls(_: object) -> None:
    raise AssertionError("evaluation actors' steps are never stored")


class LoadedRun(NamedTuple):
    """What `seed eval` and `seed export` start from."""

    config: RunConfig
    checkpoint: Checkpoint


def load_run(path: Path) -> LoadedRun:
    """Reads a run directory (its newest checkpoint) or one of its checkpoints.

    Raises:
      ConfigError, CheckpointError: it is neither, or is broken.
    """
    run_dir = path if (path / "config.yaml").exists() else path.parent.parent
    if not (run_dir / "config.yaml").exists():
        raise ConfigError(expected("RUN", "a run directory with a config.yaml", path))
    config = load_config(run_dir / "config.yaml")
    return LoadedRun(config, load_checkpoint(path / "checkpoints" if path == run_dir else path))


def run_evaluation(args: EvalArgs, actors: LocalActors) -> int:
    """Plays `args.episodes` games and prints their returns; returns the exit code.

    Raises:
      SeedError: the run cannot be read, or its environment not be made here.
    """
    stop = StopRequest()
    run = load_run(args.run)
    device = set_up_torch(args.device, torch_threads=0)
    num_envs = args.num_envs_used
    quota = EpisodeQuota(args.episodes, num_envs)
    evaluation = Evaluation(
        run.config,
        run.checkpoint,
        quota,
        device=device,
        num_envs=num_envs,
        rng_seed=args.rng_seed,
    )
    evaluation.start(actors.address)
    try:
        actors.start()
        while not quota.complete.wait(_TICK_S):
            if stop.requested:
                print("seed eval: stopped before all games had ended", file=sys.stderr)
                return 1
            actors.check()
    finally:
        actors.close()
        evaluation.close()
    if evaluation.failure is not None:
        raise evaluation.failure
    _print_results(args, run.checkpoint, quota.episodes)
    return 0


def _print_results(args: EvalArgs, checkpoint: Checkpoint, episodes: list[Episode]) -> None:
    returns = [episode.episode_return for episode in episodes]
    results = {
        "eval_return_mean": statistics.fmean(returns),
        "eval_return_std": statistics.pstdev(returns),
        "eval_return_min": min(returns),
        "eval_return_max": max(returns),
        "eval_length_mean": statistics.fmean(episode.length for episode in episodes),
        "eval_episodes": len(episodes),
        "learner_step": checkpoint.learner_step,
        "env_steps": checkpoint.state["env_steps"],
        "checkpoint": str(checkpoint.path),
        "returns": returns,
    }
    if args.json:
        print(json.dumps(results))
        return
    table = Table(title=f"{len(episodes)} greedy games, checkpoint {checkpoint.path}")
    for column in ("return mean", "std", "min", "max", "length mean"):
        table.add_column(column, justify="right")
    table.add_row(
        f"{results['eval_return_mean']:.2f}",
        f"{results['eval_return_std']:.2f}",
        f"{min(returns):g}",
        f"{max(returns):g}",
        f"{results['eval_length_mean']:.0f}",
    )
    Console().print(table)
