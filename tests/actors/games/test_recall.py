"""Recall: what is shown when, what an answer earns, and that nothing leaks the cue."""

import numpy as np
import pytest

from actors.envs import make_vector_env
from actors.games.recall import Recall
from seed.env_config import EnvConfig
from seed.errors import ConfigError

K = 3  # cues
LENGTH = 4
QUESTION = LENGTH + 1  # the step whose observation asks


def play(env: Recall, actions: list[int]) -> np.ndarray:
    """Returns the observations [len(actions), K + 2] that follow from `actions`."""
    return np.array([env.step(action)[0] for action in actions])


def cue_in(observation: np.ndarray) -> int:
    """Returns the cue that a first observation shows."""
    return int(observation[:K].argmax())


def test_cue_is_shown_first_and_the_question_comes_after_the_noise() -> None:
    """An episode shows the cue, `length` steps of noise, the question, and nothing at its end."""
    env = Recall(num_cues=K, length=LENGTH)
    first, _ = env.reset(seed=1)
    observations = np.array([first, *play(env, [0] * (QUESTION + 1))])
    assert observations.dtype == np.float32
    assert sorted(observations[0, :K]) == [0, 0, 1]
    assert not observations[1:, :K].any()
    assert observations[:, -1].tolist() == [0] * QUESTION + [1, 0]


def test_noise_is_new_at_every_step() -> None:
    """The noise is uniform in [-1, 1], also beside the cue."""
    env = Recall(length=1)
    noise = []
    for seed in range(300):
        noise += [env.reset(seed=seed)[0][-2], *play(env, [0, 0, 0])[:, -2]]
    counts, _ = np.histogram(noise, bins=4, range=(-1, 1))
    assert counts.sum() == len(noise) == len(set(noise))
    assert counts.min() > 230  # of 300 expected, 4.7 standard deviations


@pytest.mark.parametrize("seed", range(5))
def test_nothing_after_the_first_observation_depends_on_the_cue(seed: int) -> None:
    """With the same noise all later observations, the question included, are equal for all cues."""
    episodes = []
    for cue in range(K):
        env = Recall(num_cues=K, length=LENGTH)
        env.reset(seed=seed)
        env._cue = cue
        episodes.append(play(env, [0] * (QUESTION + 1)))
    for episode in episodes[1:]:
        np.testing.assert_array_equal(episode, episodes[0])


def test_question_looks_the_same_for_every_cue() -> None:
    """Only the noise differs, so a policy without memory cannot tell which answer is right."""
    env, seen = Recall(num_cues=K, length=LENGTH), {}
    for seed in range(20):
        cue = cue_in(env.reset(seed=seed)[0])
        question = play(env, [0] * QUESTION)[-1]
        seen[cue] = np.delete(question, K).tolist()
    assert seen == dict.fromkeys(range(K), [0] * K + [1])


@pytest.mark.parametrize("action", range(K))
def test_actions_before_the_question_change_nothing(action: int) -> None:
    """They earn nothing, end nothing and do not change the right answer."""
    env = Recall(num_cues=K, length=LENGTH)
    cue = cue_in(env.reset(seed=7)[0])
    for _ in range(QUESTION):
        assert env.step(action)[1:] == (0.0, False, False, {})
    assert env.step(cue)[1:] == (1.0, True, False, {"is_success": True})


@pytest.mark.parametrize("seed", range(4))
def test_answer_earns_1_for_the_cue_and_costs_1_for_any_other(seed: int) -> None:
    """A right and a wrong answer both end the episode as terminated."""
    env = Recall(num_cues=K, length=LENGTH)
    for answer in range(K):
        cue = cue_in(env.reset(seed=seed)[0])
        play(env, [0] * QUESTION)
        right = answer == cue
        wanted = (1.0 if right else -1.0, True, False, {"is_success": right})
        assert env.step(answer)[1:] == wanted


def test_cues_are_equally_likely() -> None:
    """A cue that came more often would let a guess beat chance."""
    env = Recall(num_cues=K)
    env.reset(seed=0)
    counts = np.bincount([cue_in(env.reset()[0]) for _ in range(3000)], minlength=K)
    assert counts.min() > 880  # of 1000 expected, 4.6 standard deviations


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ('{"num_cues": 1}', "num_cues: expected an int of at least 2, got 1"),
        ('{"num_cues": "two"}', "num_cues: expected an int of at least 2, got 'two'"),
        ('{"length": 0}', "length: expected an int of at least 1, got 0"),
        ('{"length": 2.5}', "length: expected an int of at least 1, got 2.5"),
        ('{"depth": 3}', "env_kwargs: expected arguments of seed/Recall-v0.*depth"),
    ],
)
def test_impossible_settings_are_refused_by_name(kwargs: str, message: str) -> None:
    """The error that an actor gets for a learner's env_kwargs names the setting."""
    with pytest.raises(ConfigError, match=message):
        make_vector_env(EnvConfig(env_id="seed/Recall-v0", env_kwargs=kwargs), num_envs=1)
