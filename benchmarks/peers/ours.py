"""This engine on a workload, by config: a workload that has none here waits for its operator."""

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import sessionlake
from benchmarks.ours import Commits, open_session
from benchmarks.peers.results import added_up
from benchmarks.peers.workloads import GRACE_MS, RETENTION, WORKLOADS
from sessionlake.config.load import Config, parse_config
from sessionlake.operators.registry import kind_of
from sessionlake.operators.run import run
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

SETTINGS = "local[2], 2 shards, 4 files a batch, Delta"
_TIMES = {"grace": f"{GRACE_MS} ms", "retention_time": RETENTION}
_SLIDING = {"kind": "sliding", "size": "10 minutes", **_TIMES}
_FINAL = {"full": "close"}
SECTIONS: dict[str, dict[str, Any]] = {
    "sessions": {"session": {"gap": "30 minutes", "grace": f"{GRACE_MS} ms", "retention": RETENTION}},
    "tumbling": {
        "window": {"kind": "tumbling", "size": "1 hour", **_TIMES},
        "emit": {"early": "batch", "late": "batch"},
    },
    "hopping": {
        "window": {"kind": "hopping", "size": "1 hour", "advance": "5 minutes", **_TIMES},
        "emit": _FINAL,
    },
    "sliding": {"window": {**_SLIDING, "exits": False}, "emit": _FINAL},
    "sliding_exits": {"window": _SLIDING, "emit": _FINAL},
}
"""The sections of a config that ask for a workload's operator."""


def ours_peer(case: dict[str, Any]) -> dict[str, Any]:
    workload = WORKLOADS[case["workload"]]
    spark, config = open_session(case), _config(case)
    commits = Commits(case["batches"])
    run(spark, config, once=True, on_commit=commits)
    found = commits.found()
    results = str(Path(case["home"], "results"))
    rows = merged_rows(Tables(spark, config.pipeline.warehouse, changelog := kind_of(config).changelog))
    times = [F.unix_millis(changelog.start).alias("start"), F.unix_millis(changelog.end).alias("end")]
    counted = F.col("event_count").alias("count")
    rows.select(F.col(changelog.key).alias("key"), *times, counted, "total").write.parquet(results)
    spark.stop()
    return found | {
        "added_up": added_up(f"read_parquet('{results}/*.parquet')", workload, case),
        "version": sessionlake.__version__,
        "settings": SETTINGS,
    }


def _config(case: dict[str, Any]) -> Config:
    files = {"path": f"{case['input']}/events", "format": "parquet", "max_files_per_batch": case["files"]}
    raw = {
        "pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 2, "trigger": "0 s"},
        "source": {"kind": "files", **files},
        "event": {"key": "key", "time": "ts"},
        "aggregates": {"total": "sum(amount)"},
        **SECTIONS[case["workload"]],
    }
    return parse_config(raw, Path(case["home"]))
