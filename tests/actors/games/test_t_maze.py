"""actors/games/t_maze.py: the corridor, its junction, and that only the sign tells the way."""

import pytest

from actors.envs import make_vector_env
from actors.games.t_maze import DOWN, LEFT, RIGHT, UP, TMaze
from seed.env_config import EnvConfig
from seed.errors import ConfigError

LENGTH = 3

SIGN_UP, SIGN_DOWN = [1, 0, 0, 0], [0, 1, 0, 0]
CORRIDOR, JUNCTION = [0, 0, 1, 0], [0, 0, 0, 1]

# A seed for each sign.
SEEDS = {UP: 0, DOWN: 1}


def start(goal: int, length: int = LENGTH, time_limit: int | None = None) -> TMaze:
    """Returns a maze whose episode with that goal has just begun."""
    env = TMaze(length, time_limit)
    observation, _ = env.reset(seed=SEEDS[goal])
    assert observation.tolist() == (SIGN_UP if goal == UP else SIGN_DOWN)
    return env


def walk(env: TMaze, actions: list[int]) -> list[list[float]]:
    """Returns the observations that follow from `actions`, none of which ends the episode."""
    observations = []
    for action in actions:
        observation, *rest = env.step(action)
        assert rest == [-0.01, False, False, {}]
        observations.append(observation.tolist())
    return observations


@pytest.mark.parametrize("goal", [UP, DOWN])
def test_only_the_first_cell_tells_the_goal(goal: int) -> None:
    """The way to the junction looks the same for both, and the position is not seen."""
    env = start(goal)
    assert walk(env, [RIGHT] * LENGTH) == [CORRIDOR] * (LENGTH - 1) + [JUNCTION]


@pytest.mark.parametrize("goal", [UP, DOWN])
def test_sign_can_be_read_again(goal: int) -> None:
    """A player that walks back to the start sees the sign again."""
    sign = SIGN_UP if goal == UP else SIGN_DOWN
    assert walk(start(goal), [RIGHT, RIGHT, LEFT, LEFT]) == [CORRIDOR] * 3 + [sign]


def test_walls_hold() -> None:
    """Running into a wall leaves the player in its cell, and costs what any step costs."""
    env = start(UP)
    assert walk(env, [LEFT, UP, DOWN]) == [SIGN_UP] * 3
    assert walk(env, [RIGHT, UP, DOWN]) == [CORRIDOR] * 3
    assert walk(env, [RIGHT, RIGHT, RIGHT]) == [CORRIDOR, JUNCTION, JUNCTION]
    assert walk(env, [LEFT, RIGHT]) == [CORRIDOR, JUNCTION]


@pytest.mark.parametrize("turn", [UP, DOWN])
@pytest.mark.parametrize("goal", [UP, DOWN])
def test_turn_at_the_junction_ends_the_episode(goal: int, turn: int) -> None:
    """The right turn earns 1 and the wrong turn -0.1; both are terminated."""
    env = start(goal)
    walk(env, [RIGHT] * LENGTH)
    observation, *rest = env.step(turn)
    found = turn == goal
    assert rest == [1.0 if found else -0.1, True, False, {"is_success": found}]
    assert observation.tolist() == JUNCTION


def test_episode_without_a_turn_is_truncated_at_its_limit() -> None:
    """The limit is 20 steps for each cell by default; the episode earns no success."""
    for limit, wanted in ((None, 20 * LENGTH), (7, 7)):
        env = start(UP, time_limit=limit)
        walk(env, [LEFT] * (wanted - 1))
        assert env.step(LEFT)[1:] == (-0.01, False, True, {"is_success": False})


def test_turn_on_the_last_step_counts() -> None:
    """It is terminated and rewarded, so the shortest limit is just enough."""
    env = start(DOWN, time_limit=LENGTH + 1)
    walk(env, [RIGHT] * LENGTH)
    assert env.step(DOWN)[1:] == (1.0, True, False, {"is_success": True})


def test_limit_counts_the_steps_of_one_episode() -> None:
    """Steps of the episode before do not count."""
    env = start(UP, time_limit=5)
    walk(env, [LEFT] * 4)
    env.reset()
    walk(env, [LEFT] * 4)


def test_signs_are_equally_likely() -> None:
    """If one sign came more often, always turning to that side would beat chance."""
    env = TMaze()
    env.reset(seed=0)
    ups = sum(env.reset()[0][0] for _ in range(1000))
    assert 425 < ups < 575  # 4.7 standard deviations


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ('{"length": 0}', "length: expected an int of at least 1, got 0"),
        ('{"length": 2.5}', "length: expected an int of at least 1, got 2.5"),
        ('{"length": 5, "time_limit": 5}', "time_limit: expected an int above length, got 5"),
        ('{"time_limit": "long"}', "time_limit: expected an int above length, got 'long'"),
        ('{"depth": 3}', "env_kwargs: expected arguments of seed/TMaze-v0.*depth"),
    ],
)
def test_impossible_settings_are_refused_by_name(kwargs: str, message: str) -> None:
    """The error that an actor gets for a learner's env_kwargs names the setting."""
    with pytest.raises(ConfigError, match=message):
        make_vector_env(EnvConfig(env_id="seed/TMaze-v0", env_kwargs=kwargs), num_envs=1)
