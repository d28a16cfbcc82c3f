"""The session's settings, seen from the driver and from a worker, in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessionlake.engine import spark
from sessionlake.engine.java import OPTIONS

PROBE = """
import json, signal, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from sessionlake.engine.spark import build_session

def our_handler(*_):
    sys.exit("stopped")

signal.signal(signal.SIGINT, our_handler)
make, handlers = SparkSession.__init__, []

def noting(self, *args, **named):
    handlers.append(signal.getsignal(signal.SIGINT))
    make(self, *args, **named)

SparkSession.__init__ = noting

def look(batches):
    import gc, sys
    for _ in batches:
        pass
    archives = [entry for entry in sys.path if entry.endswith((".jar", ".zip"))]
    loaded = [name for name in ("numpy", "pandas", "pyarrow.compute", "rocksdict") if name in sys.modules]
    seen = {"archives": archives, "loaded": loaded, "python": sys.executable, "frozen": gc.get_freeze_count() > 0}
    import json
    yield pa.RecordBatch.from_pydict({"seen": [json.dumps(seen)]})

extra = {"spark.sql.ansi.enabled": "false"}
session = build_session("probe", master="local[1]", shuffle_partitions=3, little_java=True, extra_conf=extra)
worker = session.range(1).coalesce(1).mapInArrow(look, "seen string").collect()[0].seen
session.range(5).write.format("delta").save(sys.argv[1])
session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
session.range(1).createOrReplaceTempView("v")
session.catalog.tableExists("v")
session.sql(f"vacuum delta.`{sys.argv[1]}`").collect()
print(json.dumps({
    "conf": dict(session.sparkContext.getConf().getAll()),
    "worker": json.loads(worker),
    "rows": session.read.format("delta").load(sys.argv[1]).count(),
    "same": build_session("other") is session,
    "handled": handlers == [our_handler] and signal.getsignal(signal.SIGINT) is our_handler,
}))
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file in which programs that Hadoop may start for local files note that they were started."""
    return tmp_path_factory.mktemp("programs") / "started"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user is."""
    return tmp_path_factory.mktemp("directory")


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory, started: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    for name in ("chmod", "readlink", "stat", "ls", "ln"):
        program = started.with_name(name)
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> {started}\nPATH="${{PATH#*:}}" exec {name} "$@"\n')
        program.chmod(0o755)
    command = [sys.executable, "-c", PROBE, str(tmp_path_factory.mktemp("probe") / "table")]
    env = {**os.environ, "PATH": f"{started.parent}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, cwd=directory)


@pytest.fixture(scope="module")
def seen(probe: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert probe.returncode == 0, probe.stderr
    return json.loads(probe.stdout)


def test_start_delta_write_and_vacuum_print_nothing(probe: subprocess.CompletedProcess[str]) -> None:
    assert (probe.returncode, probe.stderr) == (0, "")


def test_local_files_start_no_programs(probe: subprocess.CompletedProcess[str], started: Path) -> None:
    assert probe.returncode == 0
    assert not started.exists() or started.read_text() == ""


def test_nothing_is_left_where_the_user_is(probe: subprocess.CompletedProcess[str], directory: Path) -> None:
    assert probe.returncode == 0
    assert list(directory.iterdir()) == []


def test_delta_round_trip(seen: dict[str, Any]) -> None:
    assert seen["rows"] == 5


def test_conf_holds_defaults_and_arguments(seen: dict[str, Any]) -> None:
    conf = seen["conf"]
    assert {key: conf[key] for key in spark.DEFAULTS} == dict(spark.DEFAULTS)
    little = dict(spark.LITTLE_JAVA)
    assert conf[OPTIONS].endswith(little.pop(OPTIONS))
    assert {key: conf[key] for key in little} == little
    assert conf["spark.sql.shuffle.partitions"] == "3"
    assert conf["spark.sql.ansi.enabled"] == "false"
    assert conf["spark.driver.bindAddress"] == "127.0.0.1"


def test_worker_is_forked_lean_and_warm(seen: dict[str, Any]) -> None:
    loaded = ["numpy", "pandas", "pyarrow.compute"]
    assert seen["worker"] == {"archives": [], "loaded": loaded, "python": sys.executable, "frozen": True}


def test_active_session_is_returned(seen: dict[str, Any]) -> None:
    assert seen["same"] is True


def test_the_handler_of_ctrl_c_is_the_program_s_while_the_session_is_made(seen: dict[str, Any]) -> None:
    """Spark's own calls Java, which may be being called: ctrl-C would print the trace of that."""
    assert seen["handled"] is True


def test_sockets_are_gone_at_exit(seen: dict[str, Any]) -> None:
    assert not Path(seen["conf"]["spark.python.unix.domain.socket.dir"]).exists()
