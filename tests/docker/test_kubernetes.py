"""The Kubernetes manifests: rendered by kustomize, held against the schemas, and read closely.

The schemas do not know which labels select what, which ports and volumes belong together, what
a quantity looks like, and what the program in a container accepts.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from actors.args import ActorArgs
from learner.config.args import LearnerArgs
from seed.health import HealthArgs
from tests.support.tools import DOCKER, ROOT, parse_command_line, run_tool

K8S = DOCKER / "k8s"
# The releases that docs/fleet.md promises, from the first with sidecars and ReadWriteOncePod.
OLDEST, NEWEST = "1.29", "1.37"
SUPPORTED = (OLDEST, NEWEST)
OVERLAYS = ("cpu", "gpu")
COMPONENTS = ("autoscaling", "spot")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
QUANTITY = re.compile(r"(\d+)(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

Manifest = dict[str, Any]


@pytest.fixture(params=[*OVERLAYS, "gpu with components"])
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Returns a file with all objects of an overlay, one of them with every component added."""
    overlay, _, more = request.param.partition(" ")
    kustomization = {
        "resources": [os.path.relpath(K8S / "overlays" / overlay, tmp_path)],
        "components": [
            os.path.relpath(K8S / "components" / name, tmp_path) for name in COMPONENTS if more
        ],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    file = tmp_path / "rendered" / "all.yaml"
    file.parent.mkdir()
    file.write_text(run_tool("kubectl", "kustomize", tmp_path))
    return file


@pytest.fixture
def objects(rendered: Path) -> list[Manifest]:
    """Returns the objects in that file."""
    return list(yaml.safe_load_all(rendered.read_text()))


def of_kind(objects: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Returns the objects of one kind by name."""
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def pods(objects: list[Manifest]) -> dict[str, Manifest]:
    """Returns the pod templates by the name of the object that makes the pods."""
    return {
        item["metadata"]["name"]: item["spec"]["template"]
        for item in objects
        if item["kind"] in ("Deployment", "Job")
    }


def containers(pod: Manifest) -> list[Manifest]:
    """Returns a pod's containers, sidecars included."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def all_containers(objects: list[Manifest]) -> Iterator[tuple[Manifest, Manifest]]:
    """Yields each container with its pod."""
    for pod in pods(objects).values():
        for container in containers(pod):
            yield pod, container


def selected(labels: dict[str, str], objects: list[Manifest]) -> list[Manifest]:
    """Returns the pod templates that a selector matches."""
    found = pods(objects).values()
    return [pod for pod in found if labels.items() <= pod["metadata"]["labels"].items()]


def command_line(container: Manifest, objects: list[Manifest]) -> list[str]:
    """Returns the container's arguments with $(NAME) filled in from its config map."""
    (source,) = [e["configMapRef"]["name"] for e in container.get("envFrom", [])] or [None]
    values = of_kind(objects, "ConfigMap")[source]["data"] if source else {}
    return [
        re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], arg) for arg in container["args"]
    ]


@pytest.mark.parametrize("version", SUPPORTED)
def test_manifests_fit_the_schemas(rendered: Path, version: str) -> None:
    """An unknown field is an error, and no object lacks a schema."""
    output = run_tool("kubernetes-validate", "--strict", "-k", version, rendered)
    kinds = len(list(yaml.safe_load_all(rendered.read_text())))
    assert output.count("passed for resource") == kinds, output


def test_names_are_valid_and_unique(objects: list[Manifest]) -> None:
    """No two objects of a kind share a name, and the API server accepts each name."""
    names = [(item["kind"], item["metadata"]["name"]) for item in objects]
    assert len(names) == len(set(names))
    assert [name for _, name in names if not OBJECT_NAME.fullmatch(name)] == []


def test_selectors_find_what_they_mean(objects: list[Manifest]) -> None:
    """Services, budgets, policies and the deployment each select the pods of one template."""
    workloads = pods(objects)
    for kind, path in (
        ("Deployment", ("selector", "matchLabels")),
        ("Service", ("selector",)),
        ("PodDisruptionBudget", ("selector", "matchLabels")),
        ("NetworkPolicy", ("podSelector", "matchLabels")),
    ):
        found = of_kind(objects, kind)
        assert found
        for name, item in found.items():
            labels = item["spec"]
            for key in path:
                labels = labels[key]
            assert selected(labels, objects) == [workloads[name]]


def test_services_and_policies_name_ports_that_exist(objects: list[Manifest]) -> None:
    """A port that a service or a policy names is one of the ports of the pods that it selects."""
    (learner,) = of_kind(objects, "Service").values()
    (pod,) = selected(learner["spec"]["selector"], objects)
    ports = {port["name"]: port["containerPort"] for c in containers(pod) for port in c["ports"]}
    for port in learner["spec"]["ports"]:
        # A headless service sends clients to the pod's own port.
        assert ports[port["targetPort"]] == port["port"]
    for policy in of_kind(objects, "NetworkPolicy").values():
        (target,) = selected(policy["spec"]["podSelector"]["matchLabels"], objects)
        for rule in policy["spec"]["ingress"]:
            assert ports_of([target]) >= {port["port"] for port in rule["ports"]}
        for rule in policy["spec"]["egress"]:
            for peer in rule["to"]:
                if "podSelector" in peer:
                    targets = selected(peer["podSelector"]["matchLabels"], objects)
                    assert ports_of(targets) >= {port["port"] for port in rule["ports"]}


def ports_of(templates: list[Manifest]) -> set[str]:
    """Returns the names of the pods' ports."""
    return {port["name"] for pod in templates for c in containers(pod) for port in c["ports"]}


def test_actors_reach_the_learner_and_the_learner_reaches_no_pod(objects: list[Manifest]) -> None:
    """Of the run's own pods only actors reach the learner, and the learner calls no pod."""
    policies = of_kind(objects, "NetworkPolicy")
    peers = [
        peer["podSelector"]["matchLabels"]
        for rule in policies["learner"]["spec"]["ingress"]
        for peer in rule["from"]
        if "podSelector" in peer
    ]
    assert [selected(labels, objects) for labels in peers] == [[pods(objects)["actor"]]]
    assert policies["learner"]["spec"]["egress"] == []
    for policy in policies.values():
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_arguments_are_what_the_program_accepts(objects: list[Manifest]) -> None:
    """The learner listens where actors call; both use TLS and the token; the probes match."""
    (learner,) = pods(objects)["learner"]["spec"]["containers"]
    (actor,) = pods(objects)["actor"]["spec"]["containers"]
    learner_args = parse_command_line(command_line(learner, objects))
    actor_args = parse_command_line(command_line(actor, objects))
    assert isinstance(learner_args, LearnerArgs) and isinstance(actor_args, ActorArgs)
    assert learner_args.resume and not learner_args.insecure and not actor_args.insecure
    assert None not in (*learner_args.tls_files, learner_args.token_file)
    assert None not in (*actor_args.tls_files, actor_args.token_file)

    ports = {port["name"]: port["containerPort"] for port in learner["ports"]}
    assert f"0.0.0.0:{ports['grpc']}" in learner_args.listen
    assert learner_args.metrics_port == ports["metrics"]
    assert actor_args.metrics_port == actor["ports"][0]["containerPort"]
    assert actor_args.learner == f"learner:{ports['grpc']}"
    assert "learner" in of_kind(objects, "Service")

    for container, address in ((learner, learner_args.listen), (actor, (actor_args.learner,))):
        for probe in (container[name] for name in PROBES if name in container):
            program, *check = probe["exec"]["command"]
            health = parse_command_line(check)
            assert program == "seed" and isinstance(health, HealthArgs)
            assert health.learner in address
            # The health command times out before the probe does.
            assert health.timeout_s < probe["timeoutSeconds"]


def test_scraped_port_is_the_metrics_port(objects: list[Manifest]) -> None:
    """Prometheus finds the program's metrics port by an annotation."""
    for pod in pods(objects).values():
        ports = {p["name"]: p["containerPort"] for c in containers(pod) for p in c["ports"]}
        assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])


def test_volumes_are_mounted_and_mounts_exist(objects: list[Manifest]) -> None:
    """Every mount has a volume, every volume a mount, and every claim an object that makes it."""
    for pod in pods(objects).values():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounted = {mount["name"] for c in containers(pod) for mount in c["volumeMounts"]}
        assert mounted == volumes.keys()
        claims = {
            volume["persistentVolumeClaim"]["claimName"]
            for volume in volumes.values()
            if "persistentVolumeClaim" in volume
        }
        assert claims <= of_kind(objects, "PersistentVolumeClaim").keys()


def test_identity_files_are_those_the_docs_put_in_the_secrets(objects: list[Manifest]) -> None:
    """Every file that a command names is in the secret that docs/fleet.md describes."""
    docs = (ROOT / "docs" / "fleet.md").read_text()
    for pod, container in all_containers(objects):
        named = set(re.findall(r"/identity/(\S+)", " ".join(container["args"])))
        (name,) = [v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v]
        (command,) = re.findall(rf"create secret generic {name} ([^`]*?)(?:kubectl|`)", docs)
        assert named <= set(re.findall(r"--from-file=certs/(\S+)", command))


def test_pods_pass_the_restricted_security_standard(objects: list[Manifest]) -> None:
    """The namespace enforces the standard: no root, no privilege, no capability."""
    labels = of_kind(objects, "Namespace")["seed"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for pod, container in all_containers(objects):
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_containers_ask_for_what_they_use(objects: list[Manifest]) -> None:
    """Containers request CPU and memory and limit memory, all with valid quantities."""
    for _, container in all_containers(objects):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys()
        assert "memory" in resources["limits"]
        amounts = [*resources["requests"].values(), *resources["limits"].values()]
        assert [amount for amount in amounts if not QUANTITY.fullmatch(str(amount))] == []


def test_learner_goes_on_after_any_kill_and_has_time_to_save(objects: list[Manifest]) -> None:
    """Its container restarts in place, and the sidecar does not keep the Job from ending."""
    job = of_kind(objects, "Job")["learner"]["spec"]
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "OnFailure" and job["backoffLimit"] >= 1_000_000
    assert pod["terminationGracePeriodSeconds"] >= 120
    assert [c["restartPolicy"] for c in pod["initContainers"]] == ["Always"]


def test_gpu_overlay_asks_for_the_gpu_it_trains_on(tmp_path: Path) -> None:
    """The GPU overlay sets device, image and reserved GPU together; the CPU overlay sets none."""
    for overlay, device in (("cpu", "cpu"), ("gpu", "cuda")):
        text = run_tool("kubectl", "kustomize", K8S / "overlays" / overlay)
        objects = list(yaml.safe_load_all(text))
        (learner,) = pods(objects)["learner"]["spec"]["containers"]
        args = parse_command_line(command_line(learner, objects))
        assert isinstance(args, LearnerArgs)
        assert args.config.learner.device == device
        assert ("nvidia.com/gpu" in learner["resources"]["limits"]) == (device == "cuda")
        assert ("cuda" in learner["image"]) == (device == "cuda")


def test_autoscaler_scales_the_actors_by_a_recorded_metric(tmp_path: Path) -> None:
    """The rules record its metric, and the deployment does not set the number of replicas."""
    kustomization = {
        "resources": [os.path.relpath(K8S / "overlays" / "cpu", tmp_path)],
        "components": [os.path.relpath(K8S / "components" / "autoscaling", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    objects = list(yaml.safe_load_all(run_tool("kubectl", "kustomize", tmp_path)))
    scaler = of_kind(objects, "HorizontalPodAutoscaler")["actor"]["spec"]
    target = of_kind(objects, scaler["scaleTargetRef"]["kind"])[scaler["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"]
    (metric,) = [m["external"]["metric"]["name"] for m in scaler["metrics"]]
    rules = yaml.safe_load((DOCKER / "monitoring" / "rules.yml").read_text())
    assert metric in [rule["record"] for group in rules["groups"] for rule in group["rules"]]
    adapter = yaml.safe_load(
        (K8S / "components" / "autoscaling" / "adapter-values.yaml").read_text()
    )
    assert adapter["rules"]["external"][0]["seriesQuery"].partition("{")[0] == metric
