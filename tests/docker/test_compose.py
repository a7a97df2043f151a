"""The compose files, as the current Compose release reads them; nothing is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.args import ActorArgs
from learner.config.args import LearnerArgs
from seed.health import HealthArgs
from tests.support.tools import DOCKER, ROOT, parse_command_line, run_tool

PLAIN = (ROOT / "compose.yaml",)
GPU = (DOCKER / "compose.yaml", DOCKER / "compose.gpu.yaml")
FLEET = (DOCKER / "compose.yaml", DOCKER / "compose.fleet.yaml")
ALL = (*FLEET, DOCKER / "compose.gpu.yaml")
SELECTIONS = pytest.mark.parametrize("files", [PLAIN, GPU, FLEET], ids=["plain", "gpu", "fleet"])

Services = dict[str, dict[str, Any]]


def read_model(files: tuple[object, ...]) -> dict[str, Any]:
    """Returns what Compose makes of `files`, with every profile."""
    chosen = [part for file in files for part in ("-f", file)]
    return json.loads(
        run_tool("docker-compose", *chosen, "--profile", "*", "config", "--format", "json")
    )


def seed_services(files: tuple[object, ...]) -> Services:
    """Returns the services that run one of this project's images."""
    services: Services = read_model(files)["services"]
    return {name: s for name, s in services.items() if s["image"].startswith("seed-")}


@SELECTIONS
def test_containers_are_confined(files: tuple[object, ...]) -> None:
    """Containers have no privilege, cannot gain one, and write to volumes only."""
    for name, service in seed_services(files).items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        # Only this one differs: it hands out the files of `make certs`, and has no network.
        assert name == "identity" or "user" not in service, name


@SELECTIONS
def test_commands_are_what_the_program_accepts(files: tuple[object, ...]) -> None:
    """The program's own parsers accept every command and health check."""
    services = seed_services(files)
    learner = parse_command_line(services["learner"]["command"])
    assert isinstance(learner, LearnerArgs)
    assert learner.resume and learner.run_dir is not None and not learner.insecure
    for name in ("actor", "eval-actor"):
        actor = parse_command_line(services[name]["command"])
        assert isinstance(actor, ActorArgs)
        assert actor.learner in learner.listen
        assert actor.token_file == learner.token_file
    for name in ("learner", "actor", "eval-actor"):
        kind, program, *check = services[name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "seed")
        health = parse_command_line(check)
        assert isinstance(health, HealthArgs)
        assert health.learner in learner.listen


@SELECTIONS
def test_sockets_and_runs_are_in_volumes(files: tuple[object, ...]) -> None:
    """Learner and actors share the socket's directory, and TensorBoard only reads the runs."""
    services = seed_services(files)
    mounts = {
        name: {volume["target"]: volume for volume in service.get("volumes", [])}
        for name, service in services.items()
    }
    for name in ("learner", "actor", "eval-actor"):
        assert mounts[name]["/run/seed"]["source"] == "socket"
    assert mounts["learner"]["/runs"]["source"] == "runs"
    assert not mounts["learner"]["/runs"].get("read_only")
    assert mounts["tensorboard"]["/runs"]["read_only"]
    # Actors have no access to the runs.
    for name in ("actor", "eval-actor"):
        assert "/identity" not in mounts[name]


@SELECTIONS
def test_learner_has_time_to_save(files: tuple[object, ...]) -> None:
    """A stop waits for the checkpoint."""
    assert seed_services(files)["learner"]["stop_grace_period"] == "2m0s"


@SELECTIONS
def test_what_has_done_its_work_is_not_started_again(files: tuple[object, ...]) -> None:
    """Nor what cannot work: after five ends in a row a container stays ended."""
    services = seed_services(files)
    for name in ("learner", "actor", "eval-actor"):
        assert services[name]["restart"] == "on-failure:5"


@SELECTIONS
def test_up_returns_when_the_run_is_complete(files: tuple[object, ...]) -> None:
    """Nothing that runs by default outlives the run, and actors that were away hear of its end."""
    services: Services = read_model(files)["services"]
    by_default = {name for name, service in services.items() if not service.get("profiles")}
    assert by_default <= {"learner", "actor", "identity"}
    learner = parse_command_line(services["learner"]["command"])
    assert isinstance(learner, LearnerArgs)
    for name in ("actor", "eval-actor"):
        actor = parse_command_line(services[name]["command"])
        assert isinstance(actor, ActorArgs)
        assert actor.after_run == "end"
        assert learner.linger_s > actor.max_backoff_s


@SELECTIONS
def test_another_preset_is_another_run(
    files: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run directory is named after the preset, unless SEED_RUN names it."""

    def run_dir() -> Path | None:
        learner = parse_command_line(seed_services(files)["learner"]["command"])
        assert isinstance(learner, LearnerArgs)
        return learner.run_dir

    for preset in ("cartpole-vtrace", "memory-r2d2"):
        monkeypatch.setenv("SEED_PRESET", preset)
        assert run_dir() == Path("/runs", preset)
    monkeypatch.setenv("SEED_RUN", "mine")
    assert run_dir() == Path("/runs/mine")


def test_only_loopback_ports_are_published() -> None:
    """By default no other machine reaches a run, and its actors have no network at all."""
    services: Services = read_model(PLAIN)["services"]
    published = {name: s["ports"] for name, s in services.items() if "ports" in s}
    assert published.keys() == {"tensorboard", "prometheus", "grafana"}
    assert {port["host_ip"] for ports in published.values() for port in ports} == {"127.0.0.1"}
    for name in ("actor", "eval-actor"):
        assert services[name]["network_mode"] == "none"


def test_published_learner_asks_for_certificate_and_token() -> None:
    """The only published port of the learner is that of mutual TLS."""
    learner = seed_services(FLEET)["learner"]
    args = parse_command_line(learner["command"])
    assert isinstance(args, LearnerArgs)
    assert None not in (*args.tls_files, args.token_file)
    (port,) = learner["ports"]
    assert f"0.0.0.0:{port['target']}" in args.listen


def test_gpu_is_asked_for_by_the_learner_alone() -> None:
    """The override reserves one GPU for the learner, whose image has the CUDA build of torch."""
    services = read_model(GPU)["services"]
    for name, service in services.items():
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {})
        assert bool(devices.get("devices")) == (name == "learner")
    assert services["learner"]["build"]["args"]["TORCH_INDEX"] == ""
    assert services["learner"]["image"] == services["tensorboard"]["image"] != "seed-learner"


def test_tensorboard_reads_the_image_that_is_built() -> None:
    """A service of the compose files builds every image of this project that a service runs."""
    for files in (PLAIN, GPU, FLEET):
        services = seed_services(files)
        built = {service["image"] for service in services.values() if "build" in service}
        assert {service["image"] for service in services.values()} == built
