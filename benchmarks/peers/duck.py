"""DuckDB's batch over all events at once: what one machine's query engine needs that keeps no state and sends nothing early."""

import time
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.cpu import tree_cpu_s
from benchmarks.peers.results import added_up
from benchmarks.peers.workloads import WORKLOADS

SETTINGS = "2 threads, all events as one batch into one Parquet file"


def duckdb_peer(case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of the batch, divided by the number of the others' batches; the first run warms the page cache up."""
    home, workload = Path(case["home"]), WORKLOADS[case["workload"]]
    target = home / "results.parquet"
    found = workload.sql(workload, f"read_parquet('{case['input']}/events/*.parquet')")
    config = {"threads": 2, "temp_directory": str(home / "spilled"), "memory_limit": "6GB"}
    seconds, cpu_s = [], []
    with duckdb.connect(config=config) as connection:
        for _ in range(2):
            started, cpu_before = time.time(), tree_cpu_s()
            connection.execute(f"COPY ({found}) TO '{target}' (FORMAT parquet)")
            seconds.append(round((time.time() - started) / case["batches"], 3))
            cpu_s.append(round((tree_cpu_s() - cpu_before) / case["batches"], 3))
    rows = f"read_parquet('{target}')"
    return {
        "seconds": seconds[1:],
        "cpu_s": cpu_s[-1],
        "added_up": added_up(rows, workload, case),
        "version": duckdb.__version__,
        "settings": SETTINGS,
    }
