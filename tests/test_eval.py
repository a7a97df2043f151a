"""`seed eval` as its users run it: endless games, a time limit, and videos."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.actors.videos import frames_of
from tests.support.processes import TIMEOUT_S, Process, command

# CliffWalking has no time limit, and a policy that was hardly trained walks for ever.
ENDLESS_GAMES = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Endless(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


gymnasium.register("Endless-v0", entry_point=Endless)
"""


def run(directory: Path, *args: object) -> subprocess.CompletedProcess[str]:
    """Runs a `seed` command in a directory."""
    return subprocess.run(
        command(*args), capture_output=True, text=True, timeout=TIMEOUT_S, cwd=directory
    )


@pytest.fixture(scope="module")
def endless_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an environment whose episodes never end, in the directory with its module."""
    directory = tmp_path_factory.mktemp("endless")
    (directory / "endless.py").write_text(ENDLESS_GAMES)
    flags = ("--env-id", "endless:Endless-v0", "--total-env-steps", 2_000, "--run-dir", "run")
    done = run(directory, "train", "cartpole-vtrace", *flags, "--train-in", "thread")
    assert done.returncode == 0, done.stderr
    return directory / "run"


def test_endless_games_are_cut_by_the_time_limit(endless_run: Path) -> None:
    """Each game has the length and the return of the limit."""
    flags = ("--episodes", 3, "--max-episode-steps", 25, "--json")
    done = run(endless_run.parent, "eval", endless_run, *flags)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["returns"] == [25, 25, 25]
    assert results["eval_length_mean"] == 25
    assert results["stopped"] is False


def test_stopped_evaluation_of_endless_games_says_so(
    endless_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells its progress; on Ctrl-C it prints what there is, and exits with code 1."""
    monkeypatch.chdir(endless_run.parent)
    process = Process("eval", endless_run, "--episodes", 2, "--json")
    try:
        process.read_until(r"seed eval: 0 of 2 games ended, [1-9][\d,]* env steps so far")
        assert process.end(signal.SIGINT) == 1, process.output
    finally:
        process.end(signal.SIGKILL)
    assert "seed eval: stopped after 0 of 2 games" in process.output
    results = json.loads(process.output.splitlines()[-1])
    assert (results["stopped"], results["returns"]) == (True, [])


def test_video_of_cartpole_in_the_readmes_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a display; the file has a frame for the first observation and for each step."""
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    flags = ("--total-env-steps", 2_000, "--run-dir", "run", "--train-in", "thread")
    done = run(tmp_path, "train", "cartpole-vtrace", *flags)
    assert done.returncode == 0, done.stderr
    flags = ("--episodes", 1, "--max-episode-steps", 8, "--video", "new/game.mp4", "--json")
    done = run(tmp_path, "eval", "run", *flags)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["returns"] == [8]
    assert len(frames_of(tmp_path / "new" / "game.mp4")) == 9


def test_video_of_an_environment_without_pictures_is_refused_at_once(endless_run: Path) -> None:
    """The refusal is the only line, and no file is made."""
    done = run(endless_run.parent, "eval", endless_run, "--video", "game.mp4")
    assert done.returncode == 2
    assert done.stderr == (
        "seed eval: video: expected an environment with the render mode rgb_array, "
        "got Endless-v0 with none\n"
    )
    assert not (endless_run.parent / "game.mp4").exists()
