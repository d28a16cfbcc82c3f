"""Sessions that users make themselves, and those of `sessionlake.spark()`, in a process of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from sessionlake.engine.spark import require_delta
from sessionlake.errors import ConfigError

SCRIPT = """
import os, sys
import sessionlake
from pyspark import SparkContext
from pyspark.sql import SparkSession
from sessionlake.errors import SessionlakeError

def line(call):
    try:
        call()
    except SessionlakeError as error:
        print(error)

def java():
    return SparkContext._gateway.proc.pid

config = sessionlake.load_config(sys.argv[1])
plain = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
pipeline = sessionlake.Pipeline.from_toml(sys.argv[1])
line(lambda: sessionlake.read_sessions(plain, config))
line(lambda: sessionlake.spark())
line(lambda: pipeline.run(once=True, spark=plain))
before = java()
plain.stop()
spark = sessionlake.spark("mine", master="local[1]", conf={"spark.sql.shuffle.partitions": "3"})
print(os.path.exists(f"/proc/{before}"), java() != before)
print(spark.sparkContext.appName, spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.sql.extensions"))
print(sessionlake.spark() is spark)
line(lambda: sessionlake.read_sessions(spark, config))
"""


@pytest.mark.slow
def test_a_plain_session_is_refused_in_one_line_that_names_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text(config_in(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(file)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    refused = (
        "spark: this session has no jars of Delta Lake; end it with spark.stop(), and use spark = sessionlake.spark()"
    )
    *lines, last = done.stdout.splitlines()
    assert lines == [
        *[refused] * 3,
        "False True",
        "mine 3 io.delta.sql.DeltaSparkSessionExtension",
        "True",
    ], done.stderr
    assert last.startswith("pipeline.warehouse: ")
    assert "has no sessions yet" in last


def config_in(root: Path) -> str:
    (root / "events").mkdir()
    return f"""\
[pipeline]
name = "clicks"
warehouse = "{root}/warehouse"

[source]
kind = "files"
path = "{root}/events"
format = "json"

[event]
key = "user"
time = "at"

[session]
gap = "1 hour"
"""


def test_a_session_whose_java_cannot_be_reached_is_refused() -> None:
    class RemoteSession:
        def createDataFrame(self) -> None: ...  # noqa: N802 (Spark's name)

    told = r"^spark: this is a .*RemoteSession, and its Java can't be reached from here; use sessionlake.spark\(\), or leave Spark out"
    with pytest.raises(ConfigError, match=told):
        require_delta(RemoteSession())
