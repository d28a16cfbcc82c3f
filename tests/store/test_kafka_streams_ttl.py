"""What RocksDB's option `ttl`, as a config setter of Kafka Streams gives it, does to what is stored (docs/ttl.md)."""

import subprocess
from pathlib import Path

import pytest

from infra.compiler import class_path
from sessionlake.jars.java import java_command
from tests.oracle.kafka_streams import HERE, JARS, needs_kafka_streams


@pytest.mark.slow
@needs_kafka_streams
def test_the_option_ttl_deletes_nothing_in_kafka_streams_and_a_database_with_ttl_does(tmp_path: Path) -> None:
    classes = tmp_path / "classes"
    classes.mkdir()
    path = class_path(JARS, [HERE / "RocksTtl.java"], classes)
    command = [java_command(), "-Xmx512m", f"-Djava.io.tmpdir={tmp_path}", "-cp", path, "RocksTtl", str(tmp_path), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    told = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert told["style"] == "UNIVERSAL", "Kafka Streams' own, which the setter leaves alone"
    written, left = int(told["files_written"].split()[0]), int(told["files_written"].rpartition(" ")[2])
    assert written > 50 > left, "files were written after the ttl, and compacted"
    assert (told["written"], told["after_ttl"]) == ("1000", "1001")
    assert told["on_disk"] == told["after_full_compaction"] == "1000"
    assert told["with_ttl_database"] == "0"
