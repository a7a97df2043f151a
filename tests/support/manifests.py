"""Renders the Kubernetes manifests, and finds objects in them. Used by tests/docker."""

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.support.tools import DOCKER, run_tool

K8S = DOCKER / "k8s"
OVERLAYS = ("cpu", "gpu")
COMPONENTS = ("autoscaling", "openshift", "spot")

Manifest = dict[str, Any]


def render(directory: Path, run: str, *, overlay: str, components: Sequence[str] = ()) -> Path:
    """Copies an overlay, as a user does for a new run; returns a file with all of its objects.

    Args:
      directory: is made, and gets the copy.
      run: name of the run: the suffix of all names.
      overlay: a directory in docker/k8s/overlays. Its volume is rendered, too.
      components: names in docker/k8s/components that the copy lists.
    """
    source = K8S / "overlays" / overlay
    shutil.copytree(source, directory)
    rendered = []
    for part in (".", "volume"):
        file = directory / part / "kustomization.yaml"
        kustomization = yaml.safe_load(file.read_text())
        kustomization["nameSuffix"] = f"-{run}"
        kustomization["resources"] = [
            _relative(source / part / path, file.parent) for path in kustomization["resources"]
        ]
        kustomization["components"] = [
            _relative(K8S / "components" / name, file.parent)
            for name in components
            if part == "." or name == "openshift"
        ]
        file.write_text(yaml.safe_dump(kustomization))
        rendered.append(run_tool("kubectl", "kustomize", file.parent))
    whole = directory / "rendered.yaml"
    whole.write_text("---\n".join(rendered))
    return whole


def _relative(path: Path, start: Path) -> str:
    return os.path.relpath(path.resolve(), start.resolve())


def objects_in(file: Path) -> list[Manifest]:
    """Returns the objects in a file of manifests."""
    return list(yaml.safe_load_all(file.read_text()))


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


def selector_of(item: Manifest) -> dict[str, str]:
    """Returns the labels of the pods that a Service, budget, policy or Deployment selects."""
    spec = item["spec"]
    selector = spec["podSelector"] if item["kind"] == "NetworkPolicy" else spec["selector"]
    return selector.get("matchLabels", selector)


def _environment(container: Manifest, pod: Manifest, objects: list[Manifest]) -> dict[str, str]:
    """Returns the variables that a container gets from config maps and its pod's annotations."""
    maps = of_kind(objects, "ConfigMap")
    values: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        values |= maps[source["configMapRef"]["name"]]["data"]
    for variable in container.get("env", ()):
        field = variable["valueFrom"]["fieldRef"]["fieldPath"]
        (key,) = re.findall(r"metadata\.annotations\['(.+)'\]", field)
        values[variable["name"]] = pod["metadata"]["annotations"][key]
    return values


def command_line(container: Manifest, pod: Manifest, objects: list[Manifest]) -> list[str]:
    """Returns the container's arguments as Kubernetes makes them, with $(NAME) filled in."""
    values = _environment(container, pod, objects)
    return [
        re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], arg) for arg in container["args"]
    ]


def probe_command(
    probe: Manifest, container: Manifest, pod: Manifest, objects: list[Manifest]
) -> list[str]:
    """Returns the words of a probe's command; a shell's are split, with $NAME filled in."""
    command = probe["exec"]["command"]
    if command[0] != "sh":
        return command
    _, flag, script = command
    assert flag == "-c"
    values = _environment(container, pod, objects)
    filled = re.sub(r"\$(\w+)", lambda found: values[found[1]], script)
    return filled.replace('"', "").removeprefix("exec ").split()
