"""Real Kafka Streams as an oracle: one JVM with its TopologyTestDriver, which runs any number of streams."""

from __future__ import annotations

import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.compiler import class_path
from sessionlake.jars import load_list
from sessionlake.jars.cache import cache_directory
from sessionlake.jars.java import java_command

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / "infra" / "kstreams" / "jars.toml"
VERSION = "4.3.1"

needs_kafka_streams = pytest.mark.skipif(
    not load_list(str(JARS)).complete(cache_directory() / load_list(str(JARS)).folder),
    reason="no Kafka Streams: `make kstreams-jars` fetches it",
)


def forwarded(topology: dict[str, Any], events: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
    """Return for each event what Kafka Streams forwards, in order: (key, start, end, count, sum); Nones where it deletes.

    An event is (key, time, value), times in milliseconds from 0 on; all are in one partition. Topologies, all times likewise:
    {"kind": "time", "size", "advance", "grace"}, ends are exclusive; {"kind": "sliding", "difference", "grace"} and
    {"kind": "session", "gap", "grace"}, ends are inclusive; {"kind": "join", "before", "after", "grace"}, whose events have
    "left" or "right" as a fourth element, and whose rows are (key, time, left value, right value). "retention" is the store's,
    of all but joins, and Kafka's default if it is left out. With "finals" a session is forwarded once, when it closes.
    """
    process = _process()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps({"topology": topology, "events": events}) + "\n")
    process.stdin.flush()
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"Kafka Streams ended on {topology}; what it said is above")
    return [[tuple(update) for update in updates] for updates in json.loads(line)]


@cache
def _process() -> subprocess.Popen[str]:
    """Return the JVM, which ends with its standard input, that is with this process."""
    classes = tempfile.TemporaryDirectory(prefix="kafka-streams-")
    path = class_path(JARS, [HERE / "KafkaStreams.java"], Path(classes.name))
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Djava.io.tmpdir={classes.name}"]
    process = subprocess.Popen(
        [java_command(), *flags, "-cp", path, "KafkaStreams"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    # The folder is removed with this process.
    process.classes = classes  # type: ignore[attr-defined]
    return process
