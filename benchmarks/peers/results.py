"""What a peer's results add up to, by DuckDB, so that all can be compared."""

from typing import Any

import duckdb

from benchmarks.peers.workloads import Workload


def added_up(results: str, workload: Workload, case: dict[str, Any]) -> list[int]:
    """Return rows, sum of counts and sum of totals of the results that all peers have sent."""
    # Strictly: whether a window that ends at the very last close is sent depends on whether its end is in it.
    where = f'WHERE "end" < {case["latest_ms"] - workload.grace_ms - (workload.step_ms if workload.name == "sessions" else 0)}'
    if not closed_only(workload):
        where = ""
    total = "0" if workload.compare == "counts" else "sum(total)::BIGINT"
    config = {"threads": 2, "temp_directory": f"{case['home']}/spilled", "memory_limit": "4GB"}
    with duckdb.connect(config=config) as connection:
        row = connection.execute(f"SELECT count(*), sum(count)::BIGINT, {total} FROM {results} {where}").fetchone()
    return [int(value or 0) for value in row or ()]


def closed_only(workload: Workload) -> bool:
    """Return whether some peer sends results of the workload only when they can't change any more."""
    return workload.final or workload.name == "sessions"


def first_measured(case: dict[str, Any]) -> int:
    """Return how many batches come before those that are measured: all that only store, and a quarter of the others."""
    stored = int(case["stored_batches"])
    return stored + max(1, (case["batches"] - stored) // 4)
