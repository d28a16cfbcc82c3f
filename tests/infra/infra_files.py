"""The files under infra/, read for tests."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
KUBERNETES = INFRA / "kubernetes"
OVERLAYS = ("adls", "gcs", "s3")
COMPOSE: dict[str, Any] = yaml.safe_load((INFRA / "compose" / "compose.yaml").read_text())
HOME = "/opt/sessionlake"
"""Where the project lies in the image."""

Resource = dict[str, Any]


@cache
def load_all(file: Path) -> list[Resource]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]


def kustomizations() -> list[Path]:
    return sorted(KUBERNETES.rglob("kustomization.yaml"))


def resources() -> Iterator[tuple[Path, Resource]]:
    """Yield each whole resource, and the executors' pod template; patches are no resources."""
    for file in kustomizations():
        for name in load_all(file)[0].get("resources", []):
            if name.endswith(".yaml"):
                for resource in load_all(file.parent / name):
                    yield file.parent / name, resource
    template = KUBERNETES / "driver" / "executor.yaml"
    for pod in load_all(template):
        yield template, {**pod, "metadata": {**pod["metadata"], "name": "template"}}


def pods() -> Iterator[tuple[str, Resource]]:
    """Yield the pod of each resource that makes one, by the resource's kind and name."""
    for _, resource in resources():
        spec = resource.get("spec", {})
        if resource["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        pod = spec if resource["kind"] == "Pod" else spec.get("template", {}).get("spec")
        if pod:
            yield f"{resource['kind']}/{resource['metadata']['name']}", pod


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield what each container of Kubernetes and compose runs."""
    for name, pod in pods():
        for container in pod["containers"]:
            if "args" in container:
                yield name, [str(word) for word in container["args"]]
    driver = load_all(KUBERNETES / "executors" / "driver.yaml")[1]
    yield "executors", driver["spec"]["template"]["spec"]["containers"][0]["args"]
    for name, service in COMPOSE["services"].items():
        if service["image"].startswith("sessionlake"):
            yield f"compose/{name}", [str(word) for word in service["command"]]


def sessionlake_calls() -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments of each call of the command line, those inside of a shell's text left out."""
    for name, words in commands():
        if words[0] == "sessionlake":
            yield name, words[1:]
        elif words[0] == "submit":
            yield name, words[next(index for index, word in enumerate(words) if word.endswith(".py")) :]


def properties(file: Path) -> dict[str, str]:
    """Return the settings of a spark-defaults.conf."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(None, 1) for line in lines)
