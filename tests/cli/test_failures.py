"""An error that no command expects ends as one line, too: its cause where that is known; the trace only where it is asked for."""

import errno
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.cli.failures import explain
from sessionlake.cli.shared import one_line_errors
from sessionlake.errors import JobError, without_values
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse.lake import Lake
from tests.cli.support import Project

WORKER = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 12, in main
    process()
  File "/srv/clicks/net_lines.py", line 7, in merger
    return 10 // 0
           ~~~^^~~
ZeroDivisionError: integer division or modulo by zero

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
py4j.protocol.Py4JJavaError: An error occurred while calling o1.start.
"""
JAVA = """\
An error occurred while calling o52.save.
: org.apache.spark.SparkException: Job aborted.
	at org.apache.spark.sql.Dataset.x(Dataset.scala:1)
Caused by: {}
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


CALL = "An error occurred while calling o800.collectToPython.\n: "
FOREACH = (
    "[STREAM_FAILED] Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
    '  File "/x/site-packages/pyspark/sql/utils.py", line 130, in call\n    raise e\n'
)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/store/clicks/3/7.pending"), ["a disk is full", "/clicks/3/7"]),
        (RuntimeError(JAVA.format("java.io.IOException: No space left on device")), ["a disk is full (IOException: No"]),
        (Exception("IO error: No space left on device: While appending to file: /s/c/2/9.log"), ["full", "/s/c/2/9.log"]),
        (RuntimeError(JAVA.format("java.lang.OutOfMemoryError: Java heap space")), ["Java has too", "--driver-memory"]),
        (MemoryError(), ["a Python process has too little memory", "shards"]),
        (Exception("Corruption: block checksum mismatch in /s/clicks/0/000012.sst"), ["damaged", "/s/clicks/0/000012.sst"]),
        (PermissionError(errno.EACCES, "Permission denied", "/lake/sessions"), ["lacks a right", "'/lake/sessions'"]),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/in/a.json"), ["gone", "'/in/a.json'"]),
        (OSError(errno.EMFILE, "Too many open files", "/s/0"), ["as many files", "ulimit -n"]),
        (RuntimeError(WORKER), ["ZeroDivisionError: integer division", "at /srv/clicks/net_lines.py:7 in merger", "--traceback"]),
        (ValueError("first\nsecond"), ["ValueError: first;", "--traceback"]),
        (
            RuntimeError(CALL + "org.apache.spark.SparkException: Job 12 cancelled because SparkContext was shut down\n\tat org"),
            ["Spark's Java process has ended (SparkException: Job 12 cancelled", "look above for its last words"],
        ),
        (RuntimeError(CALL + "java.lang.IllegalStateException: odd\n\tat org"), ["java.lang.IllegalStateException: odd;"]),
        (
            RuntimeError(FOREACH + "py4j.protocol.Py4JJavaError: " + CALL + "org.apache.spark.SparkException: odd\n\tat org"),
            ["org.apache.spark.SparkException: odd;", "--traceback"],
        ),
        (RuntimeError(FOREACH + "py4j.protocol.Py4JError: odd\n"), ["py4j.protocol.Py4JError: odd;", "--traceback"]),
    ],
)  # fmt: skip
def test_explained_by_cause(error: Exception, words: list[str]) -> None:
    line = explain(error)
    assert [word for word in words if word not in line] == [], line
    assert len(line.splitlines()) == 1
    assert "second" not in line
    assert "\tat " not in line
    assert "Traceback" not in line


def test_the_cause_of_a_cause_counts() -> None:
    outer = RuntimeError("the batch failed")
    outer.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/store/1")
    outer.__cause__.__cause__ = outer  # as py4j's and Spark's errors may
    assert explain(outer).startswith("a disk is full")


def test_an_error_whose_text_went_with_java_is_told_all_the_same() -> None:
    class OfJava(Exception):  # noqa: N818 (as py4j's, which ask Java for their text)
        def __str__(self) -> str:
            raise ConnectionRefusedError(111, "Connection refused")

    assert explain(OfJava()).startswith("Spark's Java process has ended (OfJava: Java gave no text for it (Connection")


def test_what_goes_to_other_systems_quotes_no_values() -> None:
    error = JobError("where: 'jane@example.org' or `x` and \"y\" is wrong; correct it\nin line 2")
    assert without_values(error) == "JobError: where: '...' or '...' and '...' is wrong; correct it"


@click.command("burst")
@one_line_errors
def burst() -> None:
    raise ZeroDivisionError("a\nb")


@pytest.mark.parametrize("asked", ["not", "option", "variable"])
def test_trace_only_where_it_is_asked_for(asked: str) -> None:
    group = click.Group("main", commands={"burst": burst}, params=main.params)
    words = ["--traceback", "burst"] if asked == "option" else ["burst"]
    result = CliRunner().invoke(group, words, env={"SESSIONLAKE_TRACEBACK": "1" if asked == "variable" else ""})
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("sessionlake: ZeroDivisionError: a;")
    assert ("Traceback" in result.stderr) == (asked != "not")
    assert asked != "not" or len(lines) == 1


DIVIDES = """\
class Divides:
    columns = ("v",)
    value_type = "long"

    def initializer(self): return 0
    def aggregator(self, key, event, aggregate): return aggregate + 1
    def merger(self, key, left, right): return 10 // 0
"""


@pytest.mark.slow
def test_users_merger_that_raises_is_named_by_its_line(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # the command finds it active
    project = Project(tmp_path / "project")
    (project.root / "divides.py").write_text(DIVIDES)
    project.edit("shards = 2", 'shards = 2\ncode = "."')
    project.edit("sum(v)", "divides:Divides")
    project.add_events(1)
    result = project.call("run", "--once")
    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
    raised = "divides:Divides.merger raised ZeroDivisionError: integer division or modulo by zero at divides.py:7, "
    assert result.stderr.startswith(f"sessionlake: aggregates.total: {raised}for a key whose CRC-32 is ")


def test_a_commit_that_is_cut_off_is_named(tmp_path: Path) -> None:
    log = tmp_path / "sessions" / "_delta_log"
    log.mkdir(parents=True)
    whole: dict[str, Any] = {
        "commitInfo": {"timestamp": 1, "userMetadata": json.dumps({"sessionlake": {"batch_id": 1}})}
    }
    (log / f"{0:020d}.json").write_text(json.dumps(whole, separators=(",", ":"))[:-20])
    with pytest.raises(Exception, match=r"sessions: '.*/_delta_log/0{20}\.json' is cut off or damaged .*backup"):
        Lake(str(tmp_path), CHANGELOG)["sessions"].commit(0)


def test_a_panic_of_a_library_is_one_line() -> None:
    panic = type("PanicException", (BaseException,), {})

    @click.command()
    @one_line_errors
    def failing() -> None:
        raise panic('Failed to create a tokio runtime.: Os { code: 24, message: "Too many open files" }')

    found = CliRunner().invoke(failing)
    assert (found.exit_code, len(found.stderr.splitlines())) == (1, 1)
    assert "ulimit -n" in found.stderr
