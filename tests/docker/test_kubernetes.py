"""The Kubernetes manifests: rendered by kustomize, held against the schemas, and read closely.

The schemas do not know which labels select what, which ports and volumes belong together, what
a quantity looks like, and what the program in a container accepts.
"""

import re
from pathlib import Path

import pytest
import yaml

from actors.args import ActorArgs
from learner.config.args import LearnerArgs
from seed.health import HealthArgs
from tests.support.manifests import (
    COMPONENTS,
    K8S,
    OVERLAYS,
    Manifest,
    all_containers,
    command_line,
    containers,
    objects_in,
    of_kind,
    pods,
    probe_command,
    render,
    selected,
    selector_of,
)
from tests.support.tools import DOCKER, ROOT, parse_command_line, run_tool

# The releases that docs/fleet.md promises, from the first with sidecars and ReadWriteOncePod.
OLDEST, NEWEST = "1.29", "1.37"
SUPPORTED = (OLDEST, NEWEST)
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
QUANTITY = re.compile(r"(\d+)(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@pytest.fixture(scope="module", params=[*OVERLAYS, "gpu with components"])
def overlay(request: pytest.FixtureRequest) -> str:
    """Names an overlay; one has every component added."""
    return request.param


@pytest.fixture(scope="module")
def run_name(overlay: str) -> str:
    """Returns the overlay's nameSuffix, which is the name of its run."""
    return overlay.split()[0]


@pytest.fixture(scope="module")
def rendered(overlay: str, run_name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a file with all objects of a run, its volume included."""
    directory = tmp_path_factory.mktemp("overlay") / run_name
    components = COMPONENTS if " " in overlay else ()
    return render(directory, run_name, overlay=run_name, components=components)


@pytest.fixture(scope="module")
def objects(rendered: Path) -> list[Manifest]:
    """Returns the objects in that file."""
    return objects_in(rendered)


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


def test_selectors_find_what_they_mean(objects: list[Manifest], run_name: str) -> None:
    """Services, budgets, policies and deployments each select the pods of one template."""
    workloads = pods(objects)
    for kind in ("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"):
        found = of_kind(objects, kind)
        assert found
        for name, item in found.items():
            assert selected(selector_of(item), objects) == [workloads[name]]
            assert selector_of(item)["seed/run"] == f"run-{run_name}"


def test_services_and_policies_name_ports_that_exist(objects: list[Manifest]) -> None:
    """A port that a service or a policy names is one of the ports of the pods that it selects."""
    (learner,) = of_kind(objects, "Service").values()
    (pod,) = selected(learner["spec"]["selector"], objects)
    (container,) = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for port in learner["spec"]["ports"]:
        # A headless service sends clients to the pod's own port.
        assert ports[port["targetPort"]] == port["port"]
    for policy in of_kind(objects, "NetworkPolicy").values():
        (target,) = selected(selector_of(policy), objects)
        for rule in policy["spec"].get("ingress", ()):
            assert ports_of([target]) >= {port["port"] for port in rule["ports"]}
        for rule in policy["spec"].get("egress", ()):
            for peer in rule.get("to", ()):
                if "podSelector" in peer:
                    targets = selected(peer["podSelector"]["matchLabels"], objects)
                    assert ports_of(targets) >= {port["port"] for port in rule["ports"]}


def ports_of(templates: list[Manifest]) -> set[str]:
    """Returns the names of the pods' ports."""
    every = [port for pod in templates for c in containers(pod) for port in c.get("ports", ())]
    return {port["name"] for port in every}


def test_actors_reach_the_learner_and_the_learner_reaches_no_pod(
    objects: list[Manifest], run_name: str
) -> None:
    """Of the run's own pods only actors reach the learner, and the learner calls no pod."""
    policies = of_kind(objects, "NetworkPolicy")
    learner = policies[f"learner-{run_name}"]["spec"]
    peers = [
        peer["podSelector"]["matchLabels"]
        for rule in learner["ingress"]
        for peer in rule["from"]
        if "podSelector" in peer
    ]
    assert [selected(labels, objects) for labels in peers] == [[pods(objects)[f"actor-{run_name}"]]]
    assert learner["egress"] == []
    for policy in policies.values():
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]


def test_actors_may_ask_any_name_server(objects: list[Manifest], run_name: str) -> None:
    """The rule for DNS names no destination.

    A cache on each node answers at the node's address, which no selector matches; OpenShift's
    servers are in another namespace and listen on port 5353.
    """
    rules = of_kind(objects, "NetworkPolicy")[f"actor-{run_name}"]["spec"]["egress"]
    (dns,) = [rule for rule in rules if "to" not in rule]
    ports = {(port["port"], port["protocol"]) for port in dns["ports"]}
    assert ports == {(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")}


def test_arguments_are_what_the_program_accepts(objects: list[Manifest], run_name: str) -> None:
    """The learner listens where actors call; both use TLS and the token; the probes match."""
    learner_pod, actor_pod = (pods(objects)[f"{role}-{run_name}"] for role in ("learner", "actor"))
    (learner,), (actor,) = learner_pod["spec"]["containers"], actor_pod["spec"]["containers"]
    learner_args = parse_command_line(command_line(learner, learner_pod, objects))
    actor_args = parse_command_line(command_line(actor, actor_pod, objects))
    assert isinstance(learner_args, LearnerArgs) and isinstance(actor_args, ActorArgs)
    assert learner_args.resume and not learner_args.insecure and not actor_args.insecure
    assert None not in (*learner_args.tls_files, learner_args.token_file)
    assert None not in (*actor_args.tls_files, actor_args.token_file)

    ports = {port["name"]: port["containerPort"] for port in learner["ports"]}
    assert f"0.0.0.0:{ports['grpc']}" in learner_args.listen
    assert learner_args.metrics_port == ports["metrics"]
    assert actor_args.metrics_port == actor["ports"][0]["containerPort"]
    assert actor_args.learner == f"learner-{run_name}:{ports['grpc']}"
    assert f"learner-{run_name}" in of_kind(objects, "Service")

    for container, pod, address in (
        (learner, learner_pod, learner_args.listen),
        (actor, actor_pod, (actor_args.learner,)),
    ):
        for probe in (container[name] for name in PROBES if name in container):
            program, *check = probe_command(probe, container, pod, objects)
            health = parse_command_line(check)
            assert program == "seed" and isinstance(health, HealthArgs)
            assert health.learner in address
            # The health command times out before the probe does.
            assert health.timeout_s < probe["timeoutSeconds"]


def test_scraped_port_is_the_metrics_port(objects: list[Manifest], run_name: str) -> None:
    """Prometheus finds the program's metrics port by an annotation."""
    for role in ("learner", "actor"):
        pod = pods(objects)[f"{role}-{run_name}"]
        ports = {
            p["name"]: p["containerPort"] for c in pod["spec"]["containers"] for p in c["ports"]
        }
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


def test_config_maps_and_their_files_exist(objects: list[Manifest]) -> None:
    """Every script that a container runs is in a config map that its pod mounts."""
    maps, scripts = of_kind(objects, "ConfigMap"), 0
    for pod, container in all_containers(objects):
        (name,) = [v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v] or [
            ""
        ]
        for file in re.findall(r"/scripts/(\S+)", " ".join(container.get("command", ()))):
            assert file in maps[name]["data"]
            scripts += 1
    assert scripts == 2


def test_identity_files_are_those_the_docs_put_in_the_secrets(
    objects: list[Manifest], run_name: str
) -> None:
    """Every file that a command names is in the secret that docs/fleet.md describes."""
    docs = (ROOT / "docs" / "fleet.md").read_text()
    for role in ("learner", "actor"):
        pod = pods(objects)[f"{role}-{run_name}"]
        for container in pod["spec"]["containers"]:
            named = set(re.findall(r"/identity/(\S+)", " ".join(container["args"])))
            (name,) = [v["secret"]["secretName"] for v in pod["spec"]["volumes"] if "secret" in v]
            assert name == f"seed-{role}-{run_name}"
            found = re.findall(
                rf"create secret generic seed-{role}-cpu ([^`]*?)(?:kubectl|`)", docs
            )
            assert named <= set(re.findall(r"--from-file=certs/(\S+)", found[0]))


def test_pods_pass_the_restricted_security_standard(objects: list[Manifest], overlay: str) -> None:
    """The namespace enforces the standard: no root, no privilege, no capability.

    On OpenShift the namespace says which users there are, so the manifests then name none.
    """
    (namespace,) = objects_in(K8S / "namespace.yaml")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {item["metadata"]["namespace"] for item in objects} == {namespace["metadata"]["name"]}
    for pod, container in all_containers(objects):
        security = pod["spec"]["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        fixed = {"runAsUser", "runAsGroup", "fsGroup"} & security.keys()
        assert len(fixed) == (0 if " " in overlay else 3)
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_scale_down_may_call_kubernetes(objects: list[Manifest], run_name: str) -> None:
    """Its account reads the run's learner and scales the run's actors; no other pod has one."""
    for name, pod in pods(objects).items():
        if name != f"scale-down-{run_name}":
            assert pod["spec"]["automountServiceAccountToken"] is False
            assert "serviceAccountName" not in pod["spec"]
    job = pods(objects)[f"scale-down-{run_name}"]
    (account,) = of_kind(objects, "ServiceAccount")
    (role,) = of_kind(objects, "Role").values()
    (binding,) = of_kind(objects, "RoleBinding").values()
    assert job["spec"]["serviceAccountName"] == account
    assert [subject["name"] for subject in binding["subjects"]] == [account]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    names = [f"learner-{run_name}", f"actor-{run_name}"]
    (container,) = containers(job)
    assert command_line(container, job, objects) == names
    assert role["rules"] == [
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "resourceNames": [names[0]],
            "verbs": ["get"],
        },
        {
            "apiGroups": ["apps"],
            "resources": ["deployments/scale"],
            "resourceNames": [names[1]],
            "verbs": ["patch"],
        },
    ]


def test_containers_ask_for_what_they_use(objects: list[Manifest]) -> None:
    """Containers request CPU and memory and limit memory, all with valid quantities."""
    for _, container in all_containers(objects):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys()
        assert "memory" in resources["limits"]
        amounts = [*resources["requests"].values(), *resources["limits"].values()]
        assert [amount for amount in amounts if not QUANTITY.fullmatch(str(amount))] == []


def test_learner_survives_disruptions_and_not_its_own_errors(
    objects: list[Manifest], run_name: str
) -> None:
    """Drains and lost nodes do not count, a flag error ends the run, and so do many crashes."""
    job = of_kind(objects, "Job")[f"learner-{run_name}"]["spec"]
    pod = job["template"]["spec"]
    assert job["podFailurePolicy"]["rules"] == [
        {
            "action": "FailJob",
            "onExitCodes": {"containerName": "learner", "operator": "In", "values": [2]},
        },
        {
            "action": "Ignore",
            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
        },
    ]
    # Kubernetes accepts such a policy for no other restart policy.
    assert pod["restartPolicy"] == "Never" and 5 <= job["backoffLimit"] <= 50
    assert [c["name"] for c in pod["containers"]] == ["learner"]
    assert pod["terminationGracePeriodSeconds"] >= 120
    # Only so the sidecar does not keep the Job from ending.
    assert [c["restartPolicy"] for c in pod["initContainers"]] == ["Always"]


def test_pods_of_a_lost_node_are_replaced_soon(objects: list[Manifest], run_name: str) -> None:
    """The usual wait is 300 s; a list of tolerations in an overlay or component keeps ours."""
    for role, seconds in (("learner", 60), ("actor", 30)):
        tolerations = pods(objects)[f"{role}-{run_name}"]["spec"]["tolerations"]
        waits = {t["key"]: t["tolerationSeconds"] for t in tolerations if "tolerationSeconds" in t}
        names = ("unreachable", "not-ready")
        assert waits == {f"node.kubernetes.io/{name}": seconds for name in names}


def test_applying_again_keeps_the_number_of_actors(objects: list[Manifest], run_name: str) -> None:
    """A field that no manifest has is left alone; the reader of the volume is off by default."""
    deployments = of_kind(objects, "Deployment")
    assert "replicas" not in deployments[f"actor-{run_name}"]["spec"]
    assert deployments[f"results-{run_name}"]["spec"]["replicas"] == 0


def test_gpu_overlay_asks_for_the_gpu_it_trains_on() -> None:
    """The GPU overlay sets device, image and reserved GPU together; the CPU overlay sets none."""
    for overlay, device in (("cpu", "cpu"), ("gpu", "cuda")):
        text = run_tool("kubectl", "kustomize", K8S / "overlays" / overlay)
        objects = list(yaml.safe_load_all(text))
        pod = pods(objects)[f"learner-{overlay}"]
        (learner,) = pod["spec"]["containers"]
        args = parse_command_line(command_line(learner, pod, objects))
        assert isinstance(args, LearnerArgs)
        assert args.config.learner.device == device
        assert ("nvidia.com/gpu" in learner["resources"]["limits"]) == (device == "cuda")
        assert ("cuda" in learner["image"]) == (device == "cuda")


def test_autoscaler_scales_the_actors_by_a_recorded_metric(tmp_path: Path) -> None:
    """The rules record its metric, of which it reads the series of its own run."""
    objects = objects_in(render(tmp_path / "cpu", "cpu", overlay="cpu", components=["autoscaling"]))
    scaler = of_kind(objects, "HorizontalPodAutoscaler")["actor-cpu"]["spec"]
    target = of_kind(objects, scaler["scaleTargetRef"]["kind"])[scaler["scaleTargetRef"]["name"]]
    assert "replicas" not in target["spec"]
    (metric,) = [m["external"]["metric"] for m in scaler["metrics"]]
    # Prometheus turns the pod's label seed/run into this one.
    label = pods(objects)["learner-cpu"]["metadata"]["labels"]["seed/run"]
    assert metric["selector"] == {"matchLabels": {"seed_run": label}}
    rules = yaml.safe_load((DOCKER / "monitoring" / "rules.yml").read_text())
    recorded = [rule["record"] for group in rules["groups"] for rule in group["rules"]]
    assert metric["name"] in recorded
    values = K8S / "components" / "autoscaling" / "adapter-values.yaml"
    adapter = yaml.safe_load(values.read_text())
    assert adapter["rules"]["external"][0]["seriesQuery"].partition("{")[0] == metric["name"]
