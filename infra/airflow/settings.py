"""The settings of an Airflow on one machine: what its processes get as environment, and what is put into its database."""

import json
import os
import secrets
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
POOLS = {
    "sessionize": (2, "The runs of pipelines; of those that run as a long task each takes a slot for good"),
    "maintenance": (1, "All other jobs: one at a time, so that they don't fight over the machine"),
}
CONNECTION = "spark_default"
# A JVM of a few minutes on little data would spend most of its time on compiling for throughput.
_DEMO_CONF = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m",
}


@dataclass(frozen=True)
class Place:
    """Where an Airflow lives, on which ports, and the project of the pipelines that its DAGs run."""

    home: Path
    port: int
    project: Path

    @property
    def url(self) -> str:
        """The address of UI and API."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        """The password of the user admin, made once."""
        file = self.home / "passwords.json"
        if not file.exists():
            file.touch(mode=0o600)
            file.write_text(json.dumps({"admin": secrets.token_urlsafe(9)}))
        password: str = json.loads(file.read_text())["admin"]
        return password

    def environment(self) -> dict[str, str]:
        """Return the environment of Airflow's processes; what the user has set in AIRFLOW__... stands."""
        scripts = str(Path(sys.executable).parent)
        ours = {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self.port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__WORKERS": "1",
            # A task whose worker was killed is tried again after a minute, not after five.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            "SESSIONLAKE_CONFIGS": str(self.project),
            "NO_COLOR": "1",
        }
        given = {key: value for key, value in os.environ.items() if key.startswith("AIRFLOW__")}
        path = os.pathsep.join((scripts, os.environ.get("PATH", "")))
        return {**os.environ, **ours, **given, "PATH": path}


def spark_connection() -> dict[str, Any]:
    """Return the connection that a new Airflow gets: Spark in the task's own process, on all cores."""
    extra = {"deploy-mode": "client", "conf": _DEMO_CONF}
    about = "Where the DAGs' Spark runs; docs/airflow.md shows a standalone master, Kubernetes and YARN"
    return {
        "connection_id": CONNECTION,
        "conn_type": "spark",
        "host": "local[*]",
        "description": about,
        "extra": json.dumps(extra),
    }


def free_port(wanted: int) -> int:
    """Return the first port from `wanted` on that nothing on this machine listens on."""
    for port in range(wanted, wanted + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    sys.exit(f"airflow: ports {wanted} to {wanted + 99} are all taken; pass --port")


def dying_with_us() -> list[str]:
    """Return what makes a command end when the process that starts it dies; Linux only."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []
