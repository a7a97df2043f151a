"""The speed of acting, and what the last report of a run says about the time with actors.

The thread that reports calls it with every report. Torch-free.
"""

# A shorter window tells nothing: one batch more or less would change its figures.
MIN_WINDOW_S = 0.5


class Speed:
    """Measures env steps a second over windows that are long enough to mean something."""

    def __init__(self, env_steps: float = 0, wall_s: float = 0) -> None:
        """Starts at the totals of the run: those of the checkpoint, if it resumes one."""
        self._since_steps, self._since_s = env_steps, wall_s
        self._speed: float | None = None
        self._last_work: dict[str, float] = {}

    def add_to(self, report: dict[str, float]) -> None:
        """Adds `env_steps_per_s` to a report with the totals `env_steps` and `wall_s`.

        A window that is too short goes on in the next report; until then the last speed counts.
        """
        steps = report["env_steps"] - self._since_steps
        seconds = report["wall_s"] - self._since_s
        if seconds >= MIN_WINDOW_S:
            self._speed = max(steps, 0) / seconds
            self._since_steps, self._since_s = report["env_steps"], report["wall_s"]
        if self._speed is None:
            return
        report["env_steps_per_s"] = self._speed
        if seconds >= MIN_WINDOW_S and steps > 0 and report.get("envs/connected"):
            self._last_work = {name: x for name, x in report.items() if _is_about_work(name)}

    def finish(self, report: dict[str, float]) -> dict[str, float]:
        """Returns a run's last report with the figures of the last window in which actors worked.

        Its own are of the seconds in which the run was saved and closed.
        """
        return report | self._last_work


def _is_about_work(name: str) -> bool:
    return name == "env_steps_per_s" or name.startswith("time/")
