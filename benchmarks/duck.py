"""The yardstick of one machine: DuckDB's batch sessionization of the same files, by window functions."""

import time
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.cpu import tree_cpu_s
from benchmarks.synthetic import GAP

SESSIONS = """
    WITH marked AS (
        SELECT key, ts, amount, ts - lag(ts) OVER of_key > INTERVAL '{gap}' AS begins
        FROM read_parquet('{events}') WINDOW of_key AS (PARTITION BY key ORDER BY ts)
    ), numbered AS (
        SELECT key, ts, amount, count(*) FILTER (begins) OVER of_key AS session
        FROM marked WINDOW of_key AS (PARTITION BY key ORDER BY ts ROWS UNBOUNDED PRECEDING)
    )
    SELECT key, min(ts) AS session_start, max(ts) AS session_end, count(*) AS events, sum(amount) AS total
    FROM numbered GROUP BY key, session
"""


def duckdb_batch(case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of sessionizing all files at once into Parquet, on two threads; the first run warms the page cache up."""
    home = Path(case["home"])
    target = home / "sessions.parquet"
    found = SESSIONS.format(gap=GAP, events=f"{case['events']}/*.parquet")
    connection = duckdb.connect(config={"threads": 2, "temp_directory": str(home / "spilled")})
    seconds, cpu_s = [], []
    for _ in range(case["repeats"]):
        started, cpu_before = time.time(), tree_cpu_s()
        connection.execute(f"COPY ({found}) TO '{target}' (FORMAT parquet)")
        seconds.append(round(time.time() - started, 3))
        cpu_s.append(round(tree_cpu_s() - cpu_before, 3))
    sums = "count(*), sum(events)::BIGINT, sum(total)::BIGINT"
    row = connection.execute(f"SELECT {sums} FROM '{target}'").fetchone()
    return {"seconds": seconds, "cpu_s": cpu_s[-1], "added_up": list(row or ())}
