"""How a pipeline is submitted: one Airflow connection becomes the command line of spark-submit."""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

HOME = Path(__file__).resolve().parents[2]
_MASTER = re.compile(r"local(-cluster)?(\[.+\])?|yarn|(spark|k8s)://(?!local\b).+")
_JARS_KEYS = ("spark.jars", "spark.jars.packages")


class SparkConnection(Protocol):
    """What is read of an Airflow connection."""

    conn_id: str
    conn_type: str
    host: str | None
    port: int | None

    @property
    def extra_dejson(self) -> dict[str, Any]: ...  # noqa: D102


def master_of(connection: SparkConnection) -> str:
    """Return Spark's master, by the rules of Airflow's own Spark provider; ValueError where it is none.

    The provider turns what it can't read into "yarn"; here `spark://local[2]` and the like are refused.
    """
    host = connection.host or ""
    bare = connection.conn_type == "spark" and ("://" in host or not connection.port)
    master = host if bare else f"{connection.conn_type}://{host}"
    master = f"{master}:{connection.port}" if connection.port else master
    if not _MASTER.fullmatch(master):
        raise ValueError(
            f"connection {connection.conn_id}: {master!r} is no Spark master; set its host to local[*], yarn, spark://host:7077 or k8s://https://host:443"
        )
    return master


def submit_command(connection: SparkConnection, pipeline: str, arguments: Sequence[str], name: str) -> list[str]:
    """Return the command that runs pipelines/<pipeline>.py with `arguments` where the connection says.

    Extras of the connection: deploy-mode, queue (YARN), namespace (Kubernetes), home (the project's place, default: here),
    spark-binary, and conf, an object of Spark settings, which stand over the ones here.
    """
    extra = connection.extra_dejson
    home = str(extra.get("home") or HOME).rstrip("/")
    mode = extra.get("deploy-mode", "client")
    command = [*_dies_with_its_parent(), _binary(extra.get("spark-binary", "spark-submit"))]
    command += ["--master", master_of(connection), "--deploy-mode", mode, "--name", name]
    if extra.get("queue"):
        command += ["--queue", str(extra["queue"])]
    conf: dict[str, Any] = dict(_local_settings(Path(home))) if mode == "client" else {}
    if extra.get("namespace"):
        conf["spark.kubernetes.namespace"] = extra["namespace"]
    given: Mapping[str, Any] = extra.get("conf") or {}
    conf |= given
    jars = sorted(Path(home, ".jars").glob("*.jar"))
    if jars and not any(key in conf for key in _JARS_KEYS):
        conf["spark.jars"] = ",".join(map(str, jars))
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, f"{home}/pipelines/{pipeline}.py", *arguments]


def python_of(connection: SparkConnection) -> str:
    """Return the Python that runs the driver: the connection's extra `python`, else Airflow's own."""
    return str(connection.extra_dejson.get("python") or sys.executable)


def _dies_with_its_parent() -> list[str]:
    """Let the kernel end spark-submit when the task's process dies, even by SIGKILL: otherwise its driver would write on, unseen.

    The signal outlives exec, so that it reaches the JVM, which is the same process. Linux only.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def _binary(name: str) -> str:
    """Return the path of spark-submit: of PATH, else the one beside Airflow's Python."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent)) or name


def _local_settings(home: Path) -> dict[str, str]:
    """Return what a driver on this machine gets: quiet logs, and a Python that dies with its JVM."""
    settings = {}
    log4j = home / "src" / "sessionlake" / "engine" / "log4j2.properties"
    if log4j.is_file():
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    python = home / "infra" / "airflow" / "driver-python"
    if python.is_file() and shutil.which("setpriv"):
        settings["spark.pyspark.driver.python"] = str(python)
    return settings
