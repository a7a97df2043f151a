"""actors/life_signs.py: what the learner hears while a group is busy, and what ends an actor."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

from actors.args import ActorArgs
from actors.envs import make_group
from actors.group import EnvGroup
from actors.life_signs import LifeSigns
from actors.main import run
from seed.env_config import EnvConfig
from seed.pb import inference_pb2 as pb
from tests.actors.fake_learner import FakeLearner, serving
from tests.actors.odd_envs import HeldReset

_TIMEOUT_S = 20


class Stream:
    """Keeps the signs that it takes."""

    def __init__(self, silence_limit_s: float) -> None:
        self.silence_limit_s = silence_limit_s
        self.signs: list[pb.SignOfLife] = []

    def send_sign(self, sign: pb.SignOfLife) -> None:
        self.signs.append(sign)


class BusyGroup(EnvGroup):
    """A group of 2 environments; the test says how many are ready, and how busy it is."""

    def __init__(self, index: int) -> None:
        self._group = make_group(
            EnvConfig(env_id="seed/Catch-v0"), index=index, num_envs=2, base_seed=1
        )
        self.seconds, self.ready = 0.0, 2

    @property
    def index(self) -> int:
        return self._group.index

    @property
    def num_ready(self) -> int:
        return self.ready

    @property
    def busy_s(self) -> float:
        return self.seconds

    @property
    def busy_with(self) -> str:
        return self._group.busy_with


def _watch(stream: Stream, *groups: EnvGroup, env_timeout_s: float = 600.0) -> LifeSigns:
    return LifeSigns(groups, stream, env_timeout_s=env_timeout_s)


def test_sign_names_the_busiest_group_and_what_is_ready() -> None:
    """A group that is done within a second, as almost all are, gives none."""
    stream, groups = Stream(300.0), (BusyGroup(0), BusyGroup(1))
    signs = _watch(stream, *groups)
    signs.look()
    groups[0].seconds = 0.9
    signs.look()
    assert not stream.signs
    groups[1].seconds = 5.0
    signs.look()
    assert stream.signs == [pb.SignOfLife(group=1, busy_s=5.0, envs_ready=4)]


def test_signs_are_rare_but_tell_each_change_of_what_is_ready() -> None:
    """Not one a second of each of a thousand actors; a newcomer sees environments come up."""
    stream, group = Stream(300.0), BusyGroup(0)
    signs = _watch(stream, group)
    group.seconds = 2.0
    for ready in (0, 0, 1, 1, 2, 2):
        group.ready = ready
        signs.look()
    assert [sign.envs_ready for sign in stream.signs] == [0, 1, 2]


def test_older_learner_gets_no_signs() -> None:
    """It would take one for a message that breaks the contract."""
    stream, group = Stream(0.0), BusyGroup(0)
    group.seconds = 50.0
    _watch(stream, group).look()
    assert not stream.signs


def test_stuck_environment_ends_the_actor_and_is_named() -> None:
    """The reason names the group, the environment and the flag; no further sign is given."""
    stream, group, reasons = Stream(300.0), BusyGroup(3), []
    group.seconds = 601.0
    signs = LifeSigns([group], stream, env_timeout_s=600.0, end=reasons.append)
    signs.look()
    assert reasons == [
        "group 3, environment 6: expected a step or reset within 600 s (--env-timeout-s), "
        "got none in 601 s"
    ]
    assert not stream.signs


def test_learner_hears_of_an_actor_whose_reset_takes_long(tmp_path: Path) -> None:
    """Over a real stream: signs come during the reset, and the step after it."""
    HeldReset.released.clear()
    signs: list[pb.SignOfLife] = []

    def release(sign: pb.SignOfLife) -> None:
        signs.append(sign)
        if len(signs) == 3:
            HeldReset.released.set()

    address = f"unix:{tmp_path}/learner.sock"
    learner = FakeLearner("odd/HeldReset-v0", silence_limit_s=0.4, on_sign=release)
    stop = threading.Event()
    actor = threading.Thread(target=run, args=(ActorArgs(learner=address), stop), daemon=True)
    with serving(learner, address):
        actor.start()
        assert learner.stepped.wait(_TIMEOUT_S)
        stop.set()
        actor.join(_TIMEOUT_S)
    assert not actor.is_alive()
    assert signs[0].group == 0 and signs[0].busy_s > 0.04 and signs[0].envs_ready == 4


_STUCK = """
import threading, gymnasium
from gymnasium import spaces
class Stuck(gymnasium.Env):
    observation_space = action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        threading.Event().wait()
gymnasium.register("Stuck-v0", entry_point=Stuck)
"""


def test_actor_with_a_stuck_environment_kills_itself_and_shows_where(tmp_path: Path) -> None:
    """Its main thread can no longer raise; a supervisor starts another actor after a signal."""
    (tmp_path / "stuck.py").write_text(_STUCK)
    address = f"unix:{tmp_path}/learner.sock"
    root = Path(__file__).parents[2]
    with serving(FakeLearner("stuck:Stuck-v0", silence_limit_s=1.0), address):
        actor = subprocess.run(
            [sys.executable, "-m", "actors", "--learner", address, "--env-timeout-s", "0.5"],
            env={"PYTHONPATH": f"{root}:{tmp_path}"},
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert actor.returncode == -signal.SIGABRT
    assert "group 0, environment 0: expected a step or reset within 0.5 s" in actor.stderr
    assert 'stuck.py", line 9, in step' in actor.stderr


def test_thread_ends_with_the_stream() -> None:
    """A lost connection leaves no thread behind, and the next stream has one of its own."""
    with _watch(Stream(300.0), BusyGroup(0)):
        assert "life-signs" in [thread.name for thread in threading.enumerate()]
    assert "life-signs" not in [thread.name for thread in threading.enumerate()]
