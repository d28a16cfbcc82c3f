"""Flink in one process: Parquet files in, Parquet files out, exactly once."""

from pathlib import Path
from typing import Any

from benchmarks.peers.programs import java_program, watched
from benchmarks.peers.results import added_up
from benchmarks.peers.workloads import GRACE_MS, WORKLOADS
from sessionlake.jars import load_list

JARS = Path(__file__).resolve().parents[2] / "infra/flink/jars.toml"
SETTINGS = "parallelism 2, RocksDB with 1 GB, incremental checkpoints every 2 s, SQL with mini-batches of 2 s"


def flink_peer(case: dict[str, Any]) -> dict[str, Any]:
    home, workload = Path(case["home"]), WORKLOADS[case["workload"]]
    work = home / "peer"
    work.mkdir()
    times = (GRACE_MS, workload.size_ms, workload.step_ms)
    numbers = (case["events_per_batch"], case["events"], *times, workload.messages)
    inputs = ("left", "right") if workload.name == "join" else ("events",)
    folders = [str(Path(case["input"], name)) for name in inputs]
    command = java_program(JARS, "FlinkPeer.java", home, heap="3g")
    found = watched([*command, workload.name, str(work), *map(str, numbers), *folders], home)
    rows = f"read_parquet('{work}/out/**')"
    if workload.name == "sessions":
        rows = f'(SELECT key, start, "end" - {workload.step_ms} AS "end", count, total FROM {rows})'
    elif workload.name == "sliding":
        rows = f"(SELECT DISTINCT * FROM {rows})"
    elif workload.name == "tumbling":
        # Each update of a window holds more events than those before.
        latest = "max(count) AS count, arg_max(total, count) AS total"
        rows = f'(SELECT key, start, "end", {latest} FROM {rows} GROUP BY ALL)'
    return found | {"added_up": added_up(rows, workload, case), "version": version(), "settings": SETTINGS}


def version() -> str:
    return next(jar.name for jar in load_list(str(JARS)).jars if ":flink-core:" in jar.name).rpartition(":")[2]
