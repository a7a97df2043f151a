"""Catch: where ball and paddle stand, and what catching earns."""

import numpy as np
import pytest

from actors.games.catch import COLUMNS, ROWS, Catch


def test_ball_falls_one_row_a_step_and_the_ninth_step_is_the_last() -> None:
    """The ball stays in its column, and only the last step is terminated or rewarded."""
    env = Catch()
    screen, _ = env.reset(seed=0)
    assert screen.dtype == np.uint8 and screen.shape == (ROWS, COLUMNS)
    column = int(screen[0].argmax())
    for row in range(1, ROWS):
        screen, reward, terminated, truncated, _ = env.step(1)
        assert screen[row, column] == 255
        assert terminated == (row == ROWS - 1) and not truncated
        assert (reward != 0) == terminated


def test_paddle_starts_in_the_middle_and_stops_at_the_edges() -> None:
    """Action 0 moves the paddle left and action 2 moves it right."""
    env = Catch()
    screen, _ = env.reset(seed=0)
    columns = [int(screen[-1].argmax())]
    for action in (0, 0, 0, 2, 2, 2, 2, 2):
        columns.append(int(env.step(action)[0][-1].argmax()))
    assert columns == [2, 1, 0, 0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize("seed", range(5))
def test_only_a_paddle_under_the_ball_earns_1(seed: int) -> None:
    """A paddle that stands still earns 1 under the middle column, and -1 elsewhere."""
    env = Catch()
    screen, _ = env.reset(seed=seed)
    rewards = [env.step(1)[1] for _ in range(ROWS - 1)]
    assert rewards[-1] == (1 if screen[0, COLUMNS // 2] else -1)


def test_every_column_is_drawn() -> None:
    """The draws are uniform enough that no column is missing in 100 episodes."""
    env = Catch()
    assert {int(env.reset(seed=seed)[0][0].argmax()) for seed in range(100)} == set(range(COLUMNS))


def test_picture_shows_the_screen_in_squares() -> None:
    """The picture is RGB and has 16 pixels a square."""
    env = Catch(render_mode="rgb_array")
    screen, _ = env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (16 * ROWS, 16 * COLUMNS, 3)
    np.testing.assert_array_equal(picture[8::16, 8::16, 1], screen)
