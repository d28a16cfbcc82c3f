"""How a pipeline is submitted: one Airflow connection becomes spark-submit's command line, a file of Spark's settings, and an environment.

Settings may be secrets. A command line is seen by every user of the machine and kept in the task's log: they go by the file.
"""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from sessionlake_airflow.configs import HOME

log = logging.getLogger(__name__)
_MASTER = re.compile(r"local(-cluster)?(\[.+\])?|yarn|(spark|k8s)://(?!local\b).+")
_JARS_KEYS = ("spark.jars", "spark.jars.packages")
_AIRFLOWS_OWN = re.compile(r"_*AIRFLOW_(?!CTX_)|(SESSIONLAKE_ALERT_URL|PGPASSWORD)$")
_LINE_ENDS = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_IN_VALUES = str.maketrans(_LINE_ENDS)
_IN_KEYS = str.maketrans({**_LINE_ENDS, **{sign: f"\\{sign}" for sign in " :=#!"}})


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


def submit_command(connection: SparkConnection, arguments: Sequence[str], name: str, properties: Path) -> list[str]:
    """Return the command that runs pipelines/command.py with `arguments` where the connection says, set by the file `properties`.

    Extras of the connection: deploy-mode, queue (YARN), namespace (Kubernetes), home (`_home`), spark-binary, and conf
    (`spark_settings`). ValueError where pipelines/command.py can't be found.
    """
    extra = connection.extra_dejson
    command = [*_dies_with_its_parent(), _binary(extra.get("spark-binary", "spark-submit"))]
    command += ["--master", master_of(connection), "--deploy-mode", _mode(connection), "--name", name]
    if extra.get("queue"):
        command += ["--queue", str(extra["queue"])]
    # Beside our file the machine's own spark-defaults.conf still holds.
    command += ["--properties-file", str(properties), "--load-spark-defaults"]
    return [*command, f"{_home(connection)}/pipelines/command.py", *arguments]


def spark_settings(connection: SparkConnection) -> dict[str, str]:
    """Return Spark's settings: ours, and over them those of the connection's extra `conf`, an object."""
    extra, home = connection.extra_dejson, _home(connection)
    settings: dict[str, Any] = dict(_local_settings(Path(home))) if _mode(connection) == "client" else {}
    if extra.get("namespace"):
        settings["spark.kubernetes.namespace"] = extra["namespace"]
    given: Mapping[str, Any] = extra.get("conf") or {}
    settings |= given
    jars = "" if any(key in settings for key in _JARS_KEYS) else _jars(python_of(connection))
    if jars:
        settings["spark.jars"] = jars
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings as Java reads them from a file of properties in UTF-8."""
    return "".join(f"{_escaped(key, _IN_KEYS)}={_escaped(value, _IN_VALUES)}\n" for key, value in settings.items())


def write_private(file: Path, text: str) -> Path:
    """Write a new file that only this user may read; return it."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    return file


def driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a driver may know of Airflow's environment: not its own settings, connections, variables, nor the webhook.

    Those hold the database's password and the keys that sign tokens; users' aggregates and checks run in the driver.
    """
    return {name: value for name, value in environment.items() if not _AIRFLOWS_OWN.match(name)}


def python_of(connection: SparkConnection) -> str:
    """Return the Python that runs the driver: the connection's extra `python`, else Airflow's own."""
    return str(connection.extra_dejson.get("python") or sys.executable)


def _jars(python: str) -> str:
    """Return the jars' paths as the driver's Python finds them, comma-separated; the first call fetches them.

    "" where it has not the package: on a cluster that brings Delta itself, or where the driver runs elsewhere.
    """
    command = [python, "-m", "sessionlake.jars"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        log.warning("no jars are passed to Spark: %s", error)
        return ""
    if done.returncode:
        log.warning("no jars are passed to Spark: %s", done.stderr.strip()[-500:])
        return ""
    return ",".join(sorted(map(str, Path(done.stdout.strip()).glob("*.jar"))))


def drives_here(connection: SparkConnection) -> bool:
    """Say whether the driver runs on this machine, and so can read its files."""
    return _mode(connection) == "client"


def _home(connection: SparkConnection) -> str:
    """Return the directory that holds pipelines/: the connection's extra `home`, else this checkout, else where the driver's Python has sessionlake."""
    given = connection.extra_dejson.get("home")
    if given:
        return str(given).rstrip("/")
    return str(HOME) if (HOME / "pipelines" / "command.py").is_file() else _package_of(python_of(connection))


@lru_cache
def _package_of(python: str) -> str:
    code = "from sessionlake.config.shipped import shipped_directory; print(shipped_directory('pipelines').parent)"
    try:
        done = subprocess.run(
            [python, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ValueError(
            f"connection: {python!r} has no sessionlake; install it there, or name the driver's Python in the extra python, "
            "or the directory above pipelines/ in the extra home"
        ) from error
    return done.stdout.strip()


def _mode(connection: SparkConnection) -> str:
    return str(connection.extra_dejson.get("deploy-mode", "client"))


def _escaped(text: str, table: Mapping[int, str]) -> str:
    escaped = text.translate(table)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


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
    # In a checkout, and in a package.
    places = (home / place / "engine" / "log4j2.properties" for place in ("src/sessionlake", "."))
    log4j = next((place.resolve() for place in places if place.is_file()), None)
    if log4j:
        settings["spark.driver.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log4j.as_uri()}"
    python = home / "infra" / "airflow" / "driver-python"
    if python.is_file() and shutil.which("setpriv"):
        settings["spark.pyspark.driver.python"] = str(python)
    return settings
