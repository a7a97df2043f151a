"""The images and the compose files, run for real: `make docker-test`.

Needs an engine and the images, which that target builds. Not part of `make test`.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engine import Fleet, docker
from tests.support.tools import DOCKER, ROOT

pytestmark = [pytest.mark.docker, pytest.mark.timeout(3_000)]

ENDLESS = "--total-env-steps 1000000000 --report-every-s 0.5 --checkpoint-every-s 2"
CARTPOLE = {"SEED_PRESET": "cartpole-vtrace", "SEED_LEARNER_ARGS": ENDLESS}
MAX_ACTOR_BYTES = 400 * 10**6

# Learner steps of the checkpoint that the containers left, and of their last report.
READ_STEPS = """
import json, pathlib
from learner.checkpoint import load_checkpoint
run = pathlib.Path("/runs/cartpole-vtrace")
report = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
saved = load_checkpoint(run / "checkpoints").state["env_steps"]
print(json.dumps({"saved": saved, "reported": report["env_steps"]}))
"""


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    """A fleet that trains CartPole without end on one machine."""
    with Fleet(ROOT / "compose.yaml", **CARTPOLE) as fleet:
        yield fleet


def count(text: str) -> int:
    """Returns the number that a report shows as `text`."""
    return int(text.replace(",", ""))


def test_run_survives_kills_and_goes_on_from_its_checkpoint(fleet: Fleet) -> None:
    """An actor is killed, then the learner; `down` saves, and `up` goes on from there."""
    fleet.up(actors=4)
    fleet.wait_for("learner", r"[1-9]\d* updates.* 4 actors")

    fleet.crash("actor", 2)
    fleet.wait_for("learner", r" 3 actors")
    fleet.wait_for("learner", r" 4 actors")

    fleet.wait_for("learner", r"saved /runs/cartpole-vtrace/checkpoints")
    fleet.crash("learner")
    resumed = fleet.wait_for("learner", r"resuming /runs/cartpole-vtrace at ([\d,]+) env")
    at_restart = count(resumed[1])
    assert at_restart > 0
    fleet.wait_for("learner", r" 4 actors")
    saved = fleet.wait_for("learner", r"saved /runs/cartpole-vtrace/checkpoints/(\d+)")
    assert int(saved[1]) > 0

    fleet.compose("down")
    steps = fleet.run_python(READ_STEPS)
    assert steps["saved"] == steps["reported"] > at_restart

    fleet.up(actors=1)
    resumed = fleet.wait_for("learner", r"resuming /runs/cartpole-vtrace at ([\d,]+) env")
    assert count(resumed[1]) == steps["saved"]


def test_up_returns_when_the_run_is_complete() -> None:
    """Learner and actors end with 0 when the budget is spent, and are not started again."""
    flags = "--total-env-steps 5000 --report-every-s 0.5"
    with Fleet(ROOT / "compose.yaml", **CARTPOLE | {"SEED_LEARNER_ARGS": flags}) as fleet:
        shown = fleet.compose("up", "--no-build", "--scale", "actor=2")
        assert "saved in /runs/cartpole-vtrace" in shown
        for service, index in (("learner", 1), ("actor", 1), ("actor", 2)):
            name = fleet.container(service, index)
            assert docker("wait", name).strip() == "0"
            assert docker("inspect", "-f", "{{.RestartCount}}", name).strip() == "0"


def test_learner_whose_flags_cannot_work_is_not_started_for_ever() -> None:
    """It is given up after five starts."""
    settings = CARTPOLE | {"SEED_LEARNER_ARGS": "--no-such-flag 1"}
    with Fleet(ROOT / "compose.yaml", **settings) as fleet:
        fleet.compose("up", "--detach", "--no-build", "learner", check=False)
        name = fleet.container("learner")
        fleet.wait_for_restarts("learner", 5)
        assert docker("wait", name).strip() == "2"


def test_actor_of_another_machine_needs_certificate_and_token(tmp_path: Path) -> None:
    """The published port admits an actor with both; one without a token gets the reason."""
    certs = tmp_path / "certs"
    subprocess.run([sys.executable, ROOT / "tools" / "make_certs.py", certs], check=True)
    files = (DOCKER / "compose.yaml", DOCKER / "compose.fleet.yaml")
    settings = CARTPOLE | {"SEED_CERTS": str(certs), "SEED_PORT": "127.0.0.1:0"}
    with Fleet(*files, **settings) as fleet:
        fleet.up(actors=1)
        fleet.wait_for("learner", r" 1 actors")
        address = f"localhost:{fleet.published_port('learner', 50051)}"
        command = [sys.executable, "-m", "seed.cli", "actor", "--learner", address]
        for flag, file in (("ca", "ca.pem"), ("cert", "actor.pem"), ("key", "actor.key")):
            command += [f"--tls-{flag}", str(certs / file)]

        refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1
        assert "token_file" in refused.stderr

        actor = subprocess.Popen([*command, "--token-file", str(certs / "token")])
        try:
            fleet.wait_for("learner", r" 2 actors")
        finally:
            actor.terminate()
            assert actor.wait(timeout=30) == 0


def test_actor_image_is_small_and_has_no_torch() -> None:
    """Below 400 MB; neither torch nor pip is in it."""
    assert int(docker("image", "inspect", "-f", "{{.Size}}", "seed-actor")) < MAX_ACTOR_BYTES
    found = "import importlib.util as u; print(u.find_spec('torch'), u.find_spec('pip'))"
    run = ("run", "--rm", "--network", "none", "--entrypoint", "python")
    assert docker(*run, "seed-actor", "-c", found).split() == ["None", "None"]


@pytest.mark.parametrize("role", ["actor", "learner"])
def test_images_run_without_root(role: str) -> None:
    """They run as an unprivileged user, given by number, and start by themselves."""
    run = ("run", "--rm", "--network", "none", "--entrypoint", "id")
    assert "uid=10001(seed) gid=10001(seed)" in docker(*run, f"seed-{role}")
    assert "usage: seed" in docker("run", "--rm", "--network", "none", f"seed-{role}", role, "-h")
