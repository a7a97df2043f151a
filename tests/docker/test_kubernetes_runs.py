"""Several runs in one namespace of Kubernetes, and what is left when a run is deleted."""

import re
from pathlib import Path

import pytest
import yaml

from learner.config.args import LearnerArgs
from tests.support.manifests import (
    COMPONENTS,
    K8S,
    Manifest,
    command_line,
    objects_in,
    of_kind,
    pods,
    render,
    selected,
    selector_of,
)
from tests.support.tools import ROOT, parse_command_line, run_tool

RUNS = ("pong", "memory-2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Manifest]]:
    """Returns the objects of two runs, with all components and their volumes."""
    directory = tmp_path_factory.mktemp("runs")
    return [
        objects_in(render(directory / run, run, overlay="cpu", components=COMPONENTS))
        for run in RUNS
    ]


def names(objects: list[Manifest]) -> set[tuple[str, str]]:
    """Returns the kind and the name of each object."""
    return {(item["kind"], item["metadata"]["name"]) for item in objects}


def needed(objects: list[Manifest], volume: str, key: str) -> set[str]:
    """Returns the names by which pods find volumes of one type."""
    volumes = [v for pod in pods(objects).values() for v in pod["spec"]["volumes"]]
    return {v[volume][key] for v in volumes if volume in v}


def test_two_runs_share_no_name(runs: list[list[Manifest]]) -> None:
    """Every object carries its run's name, and so does each volume and secret that it uses."""
    assert names(runs[0]) & names(runs[1]) == set()
    for objects, run in zip(runs, RUNS, strict=True):
        assert needed(objects, "persistentVolumeClaim", "claimName") == {f"runs-{run}"}
        assert f"runs-{run}" in of_kind(objects, "PersistentVolumeClaim")
        secrets = {f"seed-learner-{run}", f"seed-actor-{run}"}
        assert needed(objects, "secret", "secretName") == secrets


def test_selectors_find_pods_of_their_own_run_only(runs: list[list[Manifest]]) -> None:
    """With the pods of both runs in one namespace, no selector matches those of the other run."""
    both = [item for objects in runs for item in objects]
    checked = 0
    for objects in runs:
        for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"):
            for name, item in of_kind(objects, kind).items():
                assert selected(selector_of(item), both) == [pods(objects)[name]]
                checked += 1
        for policy in of_kind(objects, "NetworkPolicy").values():
            for peer in peers(policy):
                (pod,) = selected(peer, both)
                assert pod in pods(objects).values()
                checked += 1
    assert checked == 2 * (2 + 1 + 1 + 4 + 2)


def peers(policy: Manifest) -> list[dict[str, str]]:
    """Returns the labels of the pods that a policy lets in or lets its own pods call."""
    spec = policy["spec"]
    entries = [p for rule in spec.get("ingress", ()) for p in rule["from"]]
    entries += [p for rule in spec.get("egress", ()) for p in rule.get("to", ())]
    return [entry["podSelector"]["matchLabels"] for entry in entries if "podSelector" in entry]


def test_actors_call_the_learner_of_their_run(runs: list[list[Manifest]]) -> None:
    """The learner's address has the name of the run's own Service."""
    for objects, run in zip(runs, RUNS, strict=True):
        pod = pods(objects)[f"actor-{run}"]
        (actor,) = pod["spec"]["containers"]
        assert f"--learner=learner-{run}:50051" in command_line(actor, pod, objects)
        assert f"learner-{run}" in of_kind(objects, "Service")


def test_another_preset_has_another_run_directory() -> None:
    """A learner never resumes the run of another preset."""
    directories = set()
    for overlay in ("cpu", "gpu"):
        objects = list_of(f"overlays/{overlay}")
        pod = pods(objects)[f"learner-{overlay}"]
        (learner,) = pod["spec"]["containers"]
        args = parse_command_line(command_line(learner, pod, objects))
        assert isinstance(args, LearnerArgs)
        directories.add(args.run_dir)
    assert directories == {Path("/runs/atari-vtrace-cpu"), Path("/runs/atari-vtrace")}


def list_of(directory: str) -> list[Manifest]:
    """Returns the objects of a kustomization of docker/k8s."""
    return list(yaml.safe_load_all(run_tool("kubectl", "kustomize", K8S / directory)))


@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
def test_deleting_a_run_keeps_its_volume(overlay: str) -> None:
    """`kubectl delete -k` of a run has no namespace and no volume; the volume's has no workload."""
    run = {item["kind"] for item in list_of(f"overlays/{overlay}")}
    assert not run & {"Namespace", "PersistentVolumeClaim", "PriorityClass"}
    volume = list_of(f"overlays/{overlay}/volume")
    assert names(volume) == {
        ("PersistentVolumeClaim", f"runs-{overlay}"),
        ("Deployment", f"results-{overlay}"),
        ("NetworkPolicy", f"results-{overlay}"),
    }


def test_components_make_nothing_that_all_runs_of_a_cluster_share(
    runs: list[list[Manifest]],
) -> None:
    """Every object is in the namespace, so that deleting a run takes nothing from another one."""
    for objects in runs:
        assert {item["metadata"].get("namespace") for item in objects} == {"seed"}
    (priority,) = objects_in(K8S / "components" / "spot" / "priority.yaml")
    for objects, run in zip(runs, RUNS, strict=True):
        pod = pods(objects)[f"actor-{run}"]
        assert pod["spec"]["priorityClassName"] == priority["metadata"]["name"]


def test_results_are_read_from_the_volume_that_the_learner_writes(
    runs: list[list[Manifest]],
) -> None:
    """The pod for TensorBoard and `kubectl cp` mounts it, and accepts no connection."""
    for objects, run in zip(runs, RUNS, strict=True):
        reader, learner = (pods(objects)[f"{name}-{run}"] for name in ("results", "learner"))
        mounts = [c["volumeMounts"] for pod in (reader, learner) for c in pod["spec"]["containers"]]
        for mount in mounts:
            assert {"name": "runs", "mountPath": "/runs"} in mount
        policy = of_kind(objects, "NetworkPolicy")[f"results-{run}"]["spec"]
        assert "ingress" not in policy and "egress" not in policy


def test_docs_name_what_the_manifests_make() -> None:
    """Every object and directory in a command of docs/fleet.md exists, for the overlay `cpu`."""
    docs = (ROOT / "docs" / "fleet.md").read_text()
    section = docs[docs.index("## Kubernetes\n") : docs.index("## SLURM\n")]
    made = names(list_of("overlays/cpu")) | names(list_of("overlays/cpu/volume"))
    kinds = {"job": "Job", "deployment": "Deployment"}
    named = set(re.findall(r"\b(job|deployment)[/ ]([a-z-]+-cpu)", section))
    assert len(named) >= 3
    assert {(kinds[kind], name) for kind, name in named} <= made
    paths = set(re.findall(r"kubectl (?:apply|delete) -[kf] (docker/\S+)", section))
    assert len(paths) >= 3
    assert [path for path in paths if not (ROOT / path).exists()] == []
    labels = dict(pair.split("=") for pair in re.findall(r"-l (\S+,\S+)", section)[0].split(","))
    (pod,) = selected(labels, list_of("overlays/cpu/volume"))
    assert pod["spec"]["containers"]
