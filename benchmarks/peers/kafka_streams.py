"""Kafka Streams on a broker of its own: topics in, topics out, exactly once."""

from pathlib import Path
from typing import Any

from benchmarks.peers.inputs import write_lines
from benchmarks.peers.programs import java_program, watched
from benchmarks.peers.results import added_up
from benchmarks.peers.workloads import GRACE_MS, WORKLOADS
from infra.kafka.broker import Broker
from sessionlake.jars import load_list

JARS = Path(__file__).resolve().parents[2] / "infra/kstreams/jars.toml"
SETTINGS = "exactly_once_v2, 2 threads, 2 partitions, RocksDB, cache 256 MB, commit 2 s; CPU with the broker's"


def kafka_streams_peer(case: dict[str, Any]) -> dict[str, Any]:
    home, workload = Path(case["home"]), WORKLOADS[case["workload"]]
    work = home / "peer"
    work.mkdir()
    for name in ("left", "right") if workload.name == "join" else ("events",):
        write_lines(Path(case["input"], name), work / f"{name}.tsv")
    numbers = (case["events_per_batch"], case["events"], GRACE_MS, workload.size_ms, workload.step_ms)
    with Broker(home / "broker", java=("-Xmx1g", "-XX:+UseParallelGC")) as broker:
        arguments = [workload.name, broker.bootstrap_servers, str(work), *map(str, numbers)]
        command = java_program(JARS, "KafkaStreamsPeer.java", home, heap="3g")
        found = watched([*command, *arguments], home)
    columns = {"key": "VARCHAR", "start": "BIGINT", "end": "BIGINT", "count": "BIGINT", "total": "BIGINT"}
    rows = f"(SELECT row_number() OVER () AS place, * FROM read_csv('{work}/out.tsv', delim = '\t', header = false, columns = {columns}))"
    if workload.name == "join":
        latest = rows
    else:
        # A session's updates name its bounds, and those before a merge are deleted.
        latest = f"""(SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY key, start, "end" ORDER BY place DESC) AS n FROM {rows})
            WHERE n = 1 AND count >= 0 AND key <> 'closing')"""
    return found | {"added_up": added_up(latest, workload, case), "version": version(), "settings": SETTINGS}


def version() -> str:
    return next(jar.name for jar in load_list(str(JARS)).jars if ":kafka-streams:" in jar.name).rpartition(":")[2]
