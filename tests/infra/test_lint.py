"""Each file under infra/ passes the linter of its kind, and each linter refuses a file that is wrong."""

import ast
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.infra.infra_files import INFRA, ROOT, load_all, resources

BIN = Path(sys.executable).parent
DOCKERFILE = INFRA / "image" / "Dockerfile"
COMPOSE_FILE = INFRA / "compose" / "compose.yaml"
KUBERNETES_VERSION = "1.33"
RESOURCES = [(f"{file.name}:{r['kind']}/{r['metadata']['name']}", r) for file, r in resources()]


def lint(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BIN / command[0], *command[1:]], capture_output=True, text=True, check=False, cwd=ROOT)


def hadolint(file: Path) -> subprocess.CompletedProcess[str]:
    return lint("hadolint", "--config", INFRA / "image" / "hadolint.yaml", file)


def compose_schema(file: Path) -> subprocess.CompletedProcess[str]:
    return lint("check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)


def yamllint(*files: Path) -> subprocess.CompletedProcess[str]:
    return lint("yamllint", "--strict", "--config-file", INFRA / "yamllint.yaml", *files)


def parse(script: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["bash", "-n", script], capture_output=True, check=False)


def validate(resource: dict[str, Any]) -> None:
    kubernetes_validate.validate(resource, KUBERNETES_VERSION, strict=True)


def test_dockerfile() -> None:
    done = hadolint(DOCKERFILE)
    assert done.returncode == 0, done.stdout


def test_dockerfile_with_an_unknown_instruction_and_one_with_latest_are_refused(tmp_path: Path) -> None:
    for text, rule in (("FROM python:3.11\nRUNS true\n", "2:4"), ("FROM python:latest\n", "DL3007")):
        (tmp_path / "Dockerfile").write_text(text)
        done = hadolint(tmp_path / "Dockerfile")
        assert done.returncode, text
        assert rule in done.stdout + done.stderr


def test_compose_file() -> None:
    done = compose_schema(COMPOSE_FILE)
    assert done.returncode == 0, done.stdout


def test_compose_file_with_an_unknown_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {image: b, restarts: always}}\n")
    done = compose_schema(tmp_path / "compose.yaml")
    assert done.returncode
    assert "restarts" in done.stdout


def test_yaml(tmp_path: Path) -> None:
    files = sorted(INFRA.rglob("*.y*ml"))
    assert {"alerts.yml", "compose.yaml", "stream.yaml"} <= {file.name for file in files}
    done = yamllint(*files)
    assert done.returncode == 0, done.stdout
    (tmp_path / "twice.yaml").write_text("a: 1\na: 2\n")
    assert yamllint(tmp_path / "twice.yaml").returncode


@pytest.mark.parametrize("resource", [r for _, r in RESOURCES], ids=[name for name, _ in RESOURCES])
def test_kubernetes(resource: dict[str, Any]) -> None:
    validate(resource)


def test_kubernetes_resource_with_an_unknown_field_is_refused() -> None:
    for kind in ("StatefulSet", "CronJob", "Role", "PodDisruptionBudget", "NetworkPolicy", "Pod"):
        wrong = deepcopy(next(resource for _, resource in RESOURCES if resource["kind"] == kind))
        wrong["spec" if "spec" in wrong else "metadata"]["nonsense"] = True
        with pytest.raises(kubernetes_validate.ValidationError, match="nonsense"):
            validate(wrong)


def test_scripts_parse_and_are_executable(tmp_path: Path) -> None:
    shells = ("#!/usr/bin/env bash\n", "#!/bin/sh\n")
    files = [file for file in sorted(INFRA.rglob("*")) if file.is_file() and not file.suffix]
    scripts = [file for file in files if file.read_text().startswith(shells)]
    assert {"entrypoint", "java", "promtool", "uv", "driver-python"} <= {script.name for script in scripts}
    for script in scripts:
        assert script.stat().st_mode & 0o111, script
        assert parse(script).returncode == 0, script
    (tmp_path / "wrong").write_text("if true; do :; fi\n")
    assert parse(tmp_path / "wrong").returncode


def test_grafana_provisioning_names_the_prometheus_of_compose() -> None:
    source = load_all(INFRA / "compose" / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")[0]
    services = load_all(COMPOSE_FILE)[0]["services"]
    assert source["datasources"][0]["url"] == "http://prometheus:9090"
    assert "prometheus" in services


def test_tests_import_no_other_tests() -> None:
    """What several modules of tests need is in a module that holds none, so that each of them can be moved or deleted."""
    found = {
        (str(file.relative_to(ROOT)), node.module)
        for file in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and re.match(r"tests\.(.*\.)?test_", node.module or "")
    }
    assert found == set()
