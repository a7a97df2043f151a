"""Environments that treat the process which runs them badly, registered as "rough/*".

The module prints when it is imported, as some libraries do.
"""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Calm(gymnasium.Env):
    """Episodes of 5 steps with reward 1 each."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self._steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._steps += 1
        return np.zeros(2, np.float32), 1.0, self._steps == 5, False, {}


class Aborts(Calm):
    """Native code aborts where it is told to: in "init", "reset" or "step"."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self._abort_in("init")

    def reset(self, **kwargs: Any) -> tuple[Any, dict]:
        self._abort_in("reset")
        return super().reset(**kwargs)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self._abort_in("step")
        return super().step(action)

    def _abort_in(self, where: str) -> None:
        if self._where == where:
            print("no licence found")
            os.abort()


class Forks(Calm):
    """Starts a simulator of its own, appends its process id to `file`, and never ends it."""

    def __init__(self, file: str) -> None:
        super().__init__()
        simulator = subprocess.Popen(["sleep", "1000"])
        with Path(file).open("a") as pids:
            pids.write(f"{simulator.pid}\n")


class Hangs(Calm):
    """Its first step says so on stderr, and never returns."""

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        print("the step hangs", file=sys.stderr, flush=True)
        threading.Event().wait()
        return super().step(action)


class Prints(Calm):
    """Prints in every method, by Python and by a system call, as native code does."""

    def __init__(self) -> None:
        super().__init__()
        print("a banner")
        os.write(1, b"a banner of native code\n")

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        print("stepping")
        return super().step(action)


print("rough_envs is imported")
for _name in ("Aborts", "Calm", "Forks", "Hangs", "Prints"):
    gymnasium.register(f"rough/{_name}-v0", entry_point=f"{__name__}:{_name}")
