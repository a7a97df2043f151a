"""Speed over windows that mean something, and the figures of a run's last report."""

import pytest

from learner.reporting.speed import MIN_WINDOW_S, Speed


def report(
    env_steps: float, wall_s: float, envs: float = 8.0, wait: float = 0.5
) -> dict[str, float]:
    """Returns a report with these totals."""
    return {
        "env_steps": env_steps,
        "wall_s": wall_s,
        "envs/connected": envs,
        "time/trainer_wait_share": wait,
    }


def speeds(speed: Speed, *reports: dict[str, float]) -> list[float | None]:
    """Returns the speed in each of the reports."""
    for each in reports:
        speed.add_to(each)
    return [each.get("env_steps_per_s") for each in reports]


def test_speed_is_of_the_window() -> None:
    """A window without steps has speed 0, in the middle of a run, too."""
    got = speeds(
        Speed(), report(0, 5, envs=0), report(1000, 10), report(1000, 15), report(1500, 20)
    )
    assert got == [0, 200, 0, 100]


def test_window_that_is_too_short_goes_on_in_the_next_report() -> None:
    """1,000 steps in a moment are no million steps a second, and none of them is lost."""
    short = MIN_WINDOW_S / 10
    got = speeds(
        Speed(),
        report(1000, 10),
        report(2000, 10 + short),
        report(2000, 10 + short),
        report(3000, 20),
    )
    assert got == [100, 100, 100, 200]


def test_first_window_that_is_too_short_has_no_speed() -> None:
    """There is no division by 0, and nothing is invented."""
    assert speeds(Speed(), report(0, 0), report(50, MIN_WINDOW_S / 2)) == [None, None]


def test_resumed_run_does_not_count_the_steps_of_before() -> None:
    """A learner that sees fewer steps than the checkpoint for a moment is not negative."""
    got = speeds(Speed(1_000_000, 3600), report(1_001_000, 3610), report(1_000_500, 3620))
    assert got == [100, 0]


@pytest.mark.parametrize("closing_s", [0.01, 30.0])
def test_last_report_has_the_figures_of_the_last_window_with_actors(closing_s: float) -> None:
    """The seconds in which a run was saved and closed say nothing about its speed."""
    speed = Speed()
    last = report(1000, 10 + closing_s, envs=0, wait=1.0)
    speeds(speed, report(1000, 10, wait=0.25), last)
    expected = {"env_steps_per_s": 100.0, "time/trainer_wait_share": 0.25}
    assert speed.finish(last) == last | expected


def test_last_report_of_a_run_without_actors_stays_as_it_is() -> None:
    """There was no window with actors to tell of."""
    speed = Speed()
    last = report(0, 20, envs=0)
    speeds(speed, report(0, 10, envs=0), last)
    assert speed.finish(last) == last
