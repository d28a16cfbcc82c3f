"""The wheel in an empty environment and directory, as a user has it after pip install."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.package.support import ROOT, build_wheel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
UV = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs the installed command in an empty directory; nothing of the checkout is within its reach."""
    root = tmp_path_factory.mktemp("user")
    wheel = build_wheel(root)
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, root / "venv"], check=True)
    python = root / "venv" / "bin" / "python"
    subprocess.run([UV, "pip", "install", "-q", "--python", python, f"{wheel}[spark]"], check=True, timeout=600)
    empty = root / "empty"
    empty.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "SESSIONLAKE", "SPARK"))}

    def call(*words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        command = [str(python.with_name("sessionlake")), *words]
        return subprocess.run(
            command, cwd=empty, env={**env, **more}, capture_output=True, text=True, check=False, timeout=400
        )

    return call


@pytest.fixture(scope="module")
def with_airflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the scripts of an environment that has the wheel and Airflow."""
    root = tmp_path_factory.mktemp("airflow")
    wheel = build_wheel(root)
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, root / "venv"], check=True)
    scripts = root / "venv" / "bin"
    subprocess.run(
        [UV, "pip", "install", "-q", "--python", scripts / "python", f"{wheel}[airflow]"], check=True, timeout=600
    )
    return scripts


LOAD = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from airflow.dag_processing.dagbag import DagBag

folder, properties = sys.argv[1:]
sys.path.append(folder)  # as Airflow does with its DAGs folder
bag = DagBag(dag_folder=folder)
from sessionlake_airflow.submit import spark_settings, submit_command

here = SimpleNamespace(conn_id="spark_default", conn_type="spark", host="local[1]", port=None, extra_dejson={})
command = submit_command(here, ["--version"], "x", Path(properties))
print(json.dumps({"dags": sorted(bag.dags), "errors": bag.import_errors, "command": command, "settings": spark_settings(here)}))
"""


def test_dags_of_the_wheel_load_in_airflow_and_find_what_they_submit(with_airflow: Path, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "SESSIONLAKE", "SPARK"))}
    env |= {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    env["PYSPARK_PYTHON"] = str(with_airflow / "python")  # as the operator sets it
    properties = tmp_path / "spark.properties"
    properties.touch()

    def call(*words: str | Path) -> str:
        done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stdout

    call(with_airflow / "sessionlake", "files", "dags", "--to", "dags")
    loaded = json.loads(call(with_airflow / "python", "-c", LOAD, tmp_path / "dags", properties).splitlines()[-1])
    assert loaded["errors"] == {}
    assert {"commits.run", "commits.quality", "commits.compact", "commits.forget"} <= {*loaded["dags"]}
    # The jobs of the one pipeline that is there if none is named.
    assert {name.partition(".")[0] for name in loaded["dags"]} == {"commits"}
    entry = Path(call(with_airflow / "sessionlake", "files", "pipelines").strip()) / "command.py"
    assert loaded["command"][-2:] == [str(entry), "--version"]
    assert entry.is_relative_to(with_airflow.parent)
    package = entry.parents[1]
    assert package.as_uri() in loaded["settings"]["spark.driver.defaultJavaOptions"]
    assert loaded["settings"].get("spark.pyspark.driver.python", str(package)).startswith(str(package))
    assert call(*loaded["command"]).startswith("sessionlake, version")


def test_help(run: Run) -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo" in done.stdout


def test_demo(run: Run) -> None:
    done = run("--quiet", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    for said in (
        "sessions of",
        "pip install 'sessionlake[quality]', and the demo runs it too",
        "picture of the sessions over time: pip install 'sessionlake[demo]'",
        "  ../venv/bin/sessionlake status demo\n",
        "  ../venv/bin/sessionlake init demo/events --sql demo/languages.sql -o demo/languages.toml  ",
        "  ../venv/bin/sessionlake files dags --to ~/airflow/dags  ",
    ):
        assert said in done.stdout
    # Pipelines behind others have the changes of the demo's jobs still to read; after that there is nothing.
    for rest in ({"days"}, set[str]()):
        again = run("--quiet", "run", "demo", "--once")
        assert (again.returncode, again.stderr) == (0, "")
        told = json.loads(again.stdout.splitlines()[-1])["pipelines"]
        assert {one["state"] for one in told.values()} == {"done"}
        assert {name for name, one in told.items() if one["input"]} == rest


def test_what_is_missing_is_one_line(run: Run, tmp_path: Path) -> None:
    done = run("quality", "demo/commits.toml")
    said = (
        "sessionlake: quality: Python module 'great_expectations' is missing; run: pip install 'sessionlake[quality]'\n"
    )
    assert (done.returncode, done.stderr) == (2, said)
    done = run("init", "kafka://127.0.0.1:1/topic")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "pip install 'sessionlake[kafka]'" in done.stderr
    done = run("compact", "demo/commits.toml", JAVA_HOME=str(tmp_path))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert done.stderr.startswith(f"sessionlake: Java: JAVA_HOME={tmp_path} holds none; install OpenJDK 17")
