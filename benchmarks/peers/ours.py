"""This engine on a workload, by config."""

from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import sessionlake
from benchmarks.memory import end_sampling
from benchmarks.ours import Commits, open_session
from benchmarks.peers.results import added_up, first_measured
from benchmarks.peers.workloads import WORKLOADS, Workload
from sessionlake.config.load import Config, parse_config
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.run import run
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

SETTINGS = "local[2], 2 shards, 4 files a batch, Delta"


def _times(workload: str) -> dict[str, str]:
    of = WORKLOADS[workload]
    return {"grace": f"{of.grace_ms} ms", "retention": of.retention}


def _tumbling(workload: str) -> dict[str, dict[str, Any]]:
    window = {"kind": "tumbling", "size": "1 hour", **_times(workload)}
    return {"window": window, "emit": {"early": "batch", "late": "batch"}}


_SLIDING = {"kind": "sliding", "size": "10 minutes", **_times("sliding")}
_FINAL = {"full": "close"}
_COUNT = WORKLOADS["count"].messages
SECTIONS: dict[str, dict[str, Any]] = {
    "sessions": {
        "session": {
            "gap": "30 minutes",
            "grace": _times("sessions")["grace"],
            "retention": WORKLOADS["sessions"].retention,
        }
    },
    "tumbling": _tumbling("tumbling"),
    "stored": _tumbling("stored"),
    "hopping": {
        "window": {"kind": "hopping", "size": "1 hour", "advance": "5 minutes", **_times("hopping")},
        "emit": _FINAL,
    },
    "sliding": {"window": {**_SLIDING, "exits": False}, "emit": _FINAL},
    "sliding_exits": {"window": _SLIDING, "emit": _FINAL},
    "count": {
        "window": {
            "kind": "tumbling",
            "by": "count",
            "size": _COUNT,
            "retention_count": _COUNT,
            "retention": WORKLOADS["count"].retention,
        },
        "emit": {"early": "off"},
    },
    "join": {"join": {"on": ["key"], **_times("join")}, "emit": {"early": "batch", "late": "batch"}},
}
"""The sections of a config that ask for a workload's operator."""


def ours_peer(case: dict[str, Any]) -> dict[str, Any]:
    workload = WORKLOADS[case["workload"]]
    spark, config = open_session(case), _config(case)
    commits = Commits(case["batches"], first_measured(case))
    run(spark, config, once=True, on_commit=commits)
    found = commits.found()
    end_sampling(case["home"])
    results = str(Path(case["home"], "results"))
    rows = merged_rows(Tables(spark, config.pipeline.warehouse, changelog := kind_of(config).changelog))
    shown = _shown(workload, changelog)
    rows.select(*(F.expr(text).alias(name) for name, text in shown.items())).write.parquet(results)
    spark.stop()
    return found | {
        "added_up": added_up(f"read_parquet('{results}/*.parquet')", workload, case),
        "version": sessionlake.__version__,
        "settings": SETTINGS,
    }


def _shown(workload: Workload, changelog: Changelog) -> dict[str, str]:
    """Return a result's columns in SQL over a row of the changelog."""
    columns = {"key": changelog.key, "count": "event_count", "total": "total"}
    if workload.name == "count":
        return columns | {"start": "0L", "end": "0L"}
    if workload.name == "join":
        columns = {"key": changelog.key, "count": "left_amount", "total": "right_amount"}
        return columns | {"start": "unix_millis(left_time)", "end": "unix_millis(right_time)"}
    return columns | {"start": f"unix_millis({changelog.start})", "end": f"unix_millis({changelog.end})"}


def _config(case: dict[str, Any]) -> Config:
    workload = WORKLOADS[case["workload"]]
    raw: dict[str, Any] = {"pipeline": {"name": "bench", "warehouse": "warehouse", "shards": 2, "trigger": "0 s"}}
    raw |= SECTIONS[workload.name]
    if workload.name == "join":
        raw["join"] = raw["join"] | {side: _side(case, side, f"{workload.size_ms} ms") for side in ("left", "right")}
    else:
        raw |= {"source": _files(case, "events"), "event": {"key": "key", "time": "ts"}}
        raw["aggregates"] = {"total": "sum(amount)"}
    return parse_config(raw, Path(case["home"]))


def _files(case: dict[str, Any], folder: str) -> dict[str, Any]:
    path = f"{case['input']}/{folder}"
    return {"kind": "files", "path": path, "format": "parquet", "max_files_per_batch": case["files"]}


def _side(case: dict[str, Any], folder: str, size: str) -> dict[str, Any]:
    source = {"source": _files(case, folder), "event": {"time": "ts"}}
    return {"name": folder, "size": size, "columns": ["amount"]} | source
