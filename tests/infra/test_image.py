"""The image has the lock's versions, and its entrypoint starts what Spark expects of a container."""

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread

import pyspark
import pytest

from sessionlake.jars import load_list
from tests.infra.infra_files import COMPOSE, HOME, INFRA, OVERLAYS, ROOT, pods

DOCKERFILE = (INFRA / "image" / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def listed(name: str) -> dict[str, str]:
    """The revision of each jar of a list, by its name."""
    return {name: revision for _, name, revision, *_ in (jar.name.split(":") for jar in load_list(name).jars)}


def entrypoint(tmp_path: Path, *arguments: str, **env: str) -> list[str]:
    """Run the entrypoint with programs that print their arguments in place of the real ones."""
    for name in ("java", "spark-submit", "spark-class", "sessionlake"):
        stub = tmp_path / name
        stub.write_text(f'#!/bin/sh\nprintf "%s\\n" {name} "$@"\n')
        stub.chmod(0o755)
    done = subprocess.run(
        [INFRA / "image" / "entrypoint", *arguments],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SPARK_HOME": "/spark", **env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_python_is_one_the_project_runs_on() -> None:
    major, minor = re.search(r"^FROM python:(\d+)\.(\d+)-", DOCKERFILE, re.MULTILINE).groups()
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.13"
    assert (int(major), int(minor)) in {(3, 11), (3, 12)}
    assert set(re.findall(r"python(\d\.\d+)/site-packages", DOCKERFILE)) == {f"{major}.{minor}"}


def test_packages_come_from_the_lock() -> None:
    syncs = re.findall(r"uv sync [^&\n]*", DOCKERFILE)
    assert len(syncs) == 2
    for sync in syncs:
        assert "--frozen" in sync
        groups = re.findall(r"--group (\S+)", sync)
        assert set(groups) <= set(PROJECT["dependency-groups"])
    assert not re.search(r"pip install|https?://", DOCKERFILE)


def test_what_is_copied_is_there_and_not_ignored() -> None:
    ignored = {line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"}
    for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        for source in words.split()[:-1]:
            assert (ROOT / source).exists()
            assert not ignored & set(Path(source).parts)
    made = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    for name in [".git", ".env", *made]:
        assert any(fnmatch(name, pattern.removeprefix("**/")) for pattern in ignored), name
    assert "**/.env" in ignored


def test_its_user_is_the_one_of_all_pods() -> None:
    user, group = map(int, re.search(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE).groups())
    assert user != 0
    for name, pod in pods():
        assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (user, group), name


def test_jars_are_fetched_with_no_more_of_the_code_than_is_copied_before(tmp_path: Path) -> None:
    copied = re.findall(r"^COPY (src/sessionlake/\S+) ", DOCKERFILE, re.MULTILINE)
    for path in copied:
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / path).is_dir() else shutil.copy)(ROOT / path, target)
    packages = Path(pyspark.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-S", "-m", "sessionlake.jars", "no_such_list"],
        env={"PYTHONPATH": f"{tmp_path / 'src'}:{packages}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("sessionlake: jars: 'no_such_list' is no list of jars")


def test_object_store_jars_fit_the_spark_that_is_locked() -> None:
    shipped = next(Path(pyspark.__file__).parent.joinpath("jars").glob("hadoop-client-api-*.jar"))
    hadoop = shipped.stem.removeprefix("hadoop-client-api-")
    lists = {store: listed(store) for store in OVERLAYS}
    assert lists["s3"]["hadoop-aws"] == lists["adls"]["hadoop-azure"] == hadoop
    assert lists["s3"]["spark-hadoop-cloud_2.13"] == version("pyspark")
    assert lists["s3"]["delta-storage"] == listed("spark")["delta-storage"] == version("delta-spark")
    sdk = {rev for name, rev in lists["s3"].items() if name in {"s3", "sts", "sdk-core", "s3-transfer-manager"}}
    assert len(sdk) == 1


def test_the_broker_is_the_one_that_is_tested() -> None:
    tested = listed(str(INFRA / "kafka" / "jars.toml"))["kafka_2.13"]
    images = {s["image"] for s in COMPOSE["services"].values() if s["image"].startswith("apache/kafka")}
    assert images == {f"apache/kafka:{tested}"}


def test_tag_is_the_version_of_the_project() -> None:
    tag = PROJECT["project"]["version"]
    ours = {s["image"] for s in COMPOSE["services"].values() if "build" in s}
    assert ours == {f"sessionlake:{tag}"}
    for file in INFRA.joinpath("kubernetes").rglob("kustomization.yaml"):
        assert set(re.findall(r"newTag: (\S+)", file.read_text())) <= {tag}, file


def test_executor_gets_what_spark_passes_as_environment(tmp_path: Path) -> None:
    env = {
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "4",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "exec-3",
        **{f"SPARK_JAVA_OPT_{n}": f"-Dn={n} with space" for n in range(12)},
    }
    words = entrypoint(tmp_path, "executor", **env)
    assert words[:13] == ["java", *(f"-Dn={n} with space" for n in range(12))]
    backend = words.index("org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend")
    options = dict(zip(words[backend + 1 :: 2], words[backend + 2 :: 2], strict=True))
    assert options == {
        "--driver-url": env["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "4",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.1",
        "--resourceProfileId": "0",
        "--podName": "exec-3",
    }


def test_driver_is_bound_to_the_address_that_spark_passes(tmp_path: Path) -> None:
    words = entrypoint(tmp_path, "driver", "--class", "a b", SPARK_DRIVER_BIND_ADDRESS="10.0.0.1")
    bound = ["--conf", "spark.driver.bindAddress=10.0.0.1", "--deploy-mode", "client"]
    assert words == ["spark-submit", *bound, "--class", "a b"]


def test_submit_adds_the_jars(tmp_path: Path) -> None:
    jars = tmp_path / "jars"
    jars.mkdir()
    for name in ("a.jar", "b.jar"):
        (jars / name).touch()
    words = entrypoint(tmp_path, "submit", "--master", "k8s://x", "run.py", "c.toml", SESSIONLAKE_JARS=str(jars))
    assert words[:3] == ["spark-submit", "--jars", f"{jars}/a.jar,{jars}/b.jar"]
    assert words[-4:] == ["--master", "k8s://x", "run.py", "c.toml"]


@pytest.mark.parametrize("kind", ["master", "worker"])
def test_cluster_processes(tmp_path: Path, kind: str) -> None:
    name = f"org.apache.spark.deploy.{kind}.{kind.capitalize()}"
    assert entrypoint(tmp_path, kind, "--port", "1") == ["spark-class", name, "--port", "1"]


@pytest.mark.parametrize(
    ("metrics", "code"),
    [
        ('sessionlake_last_trigger_timestamp_seconds{{pipeline="p"}} {now}', 0),
        ('sessionlake_last_trigger_timestamp_seconds{{pipeline="p"}} {old!r}', 1),
        ('sessionlake_batches_total{{pipeline="p"}} 0.0', 0),
        (None, 1),
    ],
    ids=["beats", "hangs", "has not begun", "does not answer"],
)
def test_a_stream_that_hangs_is_not_alive(metrics: str | None, code: int) -> None:
    class Metrics(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"# HELP x\n{metrics}\n".format(now=time.time(), old=time.time() - 200).encode())

    with HTTPServer(("127.0.0.1", 0), Metrics) as server:
        url = f"http://127.0.0.1:{server.server_port if metrics else 9}/metrics"
        if metrics:
            Thread(target=server.handle_request, daemon=True).start()
        done = subprocess.run([INFRA / "image" / "alive", url, "100"], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert ("heartbeat is 200 s old" in done.stderr) == (metrics is not None and "old" in metrics)


def test_anything_else_is_run_as_it_is(tmp_path: Path) -> None:
    assert entrypoint(tmp_path, "sessionlake", "run", "a b.toml") == ["sessionlake", "run", "a b.toml"]


def test_paths_in_the_image_are_paths_in_the_project() -> None:
    named = set()
    for file in [p for p in INFRA.rglob("*") if p.is_file() and p.suffix in {"", ".yaml", ".conf"}]:
        named |= set(re.findall(rf"{HOME}/((?:infra|pipelines|dags|src)[\w./-]*)", file.read_text()))
    assert len(named) > 5
    for path in named:
        assert (ROOT / path).exists(), path
