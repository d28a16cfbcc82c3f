"""A process in which Airflow is imported, and what it finds as spark-submit."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil

DESCRIBE = Path(__file__).with_name("describe.py")
CONFIGS = Path(__file__).parents[2] / "infra" / "compose" / "pipelines"
"""A directory with one config, and no project."""
STREAMED = "\n[airflow]\nrun = 'stream'\n[sink.kafka]\nbootstrap_servers = 'broker:9092'\ntopic = 'sessions'\n"
LOCAL = json.dumps({"conn_type": "spark", "host": "local[*]"})
STUB = """\
#!/usr/bin/env bash
printf '%s\\n' "$@" > "$STUB_FILES/argv"
echo $$ > "$STUB_FILES/pid"
env -0 > "$STUB_FILES/environment"
rm -f "$STUB_FILES"/given.*
while [ $# -gt 1 ]; do
  case $1 in --properties-file|--*-file)
    cp -p "$2" "$STUB_FILES/given.${1#--}"
    stat -c '%a' "$2" "$(dirname "$2")" > "$STUB_FILES/modes"
  esac
  shift
done
eval "${STUB:-true}"
"""


def airflow_process(home: Path, wanted: dict[str, Any]) -> tuple[subprocess.Popen[str], Path]:
    """Start describe.py with an empty AIRFLOW_HOME and a stub in the place of spark-submit; return it and its answer's path."""
    stub = home / "bin" / "spark-submit"
    stub.parent.mkdir(parents=True)
    stub.write_text(STUB)
    stub.chmod(0o755)
    configs = home / "configs"
    if not configs.exists():
        make_project(configs)
    env = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
    env |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": LOCAL,
        "SESSIONLAKE_CONFIGS": str(configs),
        "STUB_FILES": str(home),
        "PATH": f"{stub.parent}{os.pathsep}{env['PATH']}",
    }
    (home / "wanted.json").write_text(json.dumps(wanted))
    answer = home / "answer.json"
    with (home / "wanted.json").open() as stdin, (home / "output.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(DESCRIBE), str(answer)], env=env, stdin=stdin, stdout=log, stderr=log, text=True
        )
    return process, answer


def make_project(configs: Path) -> None:
    """Write a project of two pipelines: `clicks`, which runs by a schedule, and `feed`, which is a long task and publishes."""
    configs.mkdir()
    text = (CONFIGS / "clicks.toml").read_text()
    (configs / "project.toml").touch()
    (configs / "clicks.toml").write_text(text)
    (configs / "feed.toml").write_text(text.replace('name = "clicks"', 'name = "feed"') + STREAMED)


def ask_airflow(home: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return describe.py's answer."""
    process, answer = airflow_process(home, wanted)
    assert process.wait(200) == 0, (home / "output.log").read_text()[-5000:]
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def alive(pid: int) -> bool:
    """Say whether a process runs; one that waits for its parent to collect it doesn't."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(found: Callable[[], Any], seconds: float = 100) -> Any:
    """Return what is found as soon as there is something."""
    deadline = monotonic() + seconds
    while not (value := found()):
        assert monotonic() < deadline, "it did not happen"
        sleep(0.05)
    return value
