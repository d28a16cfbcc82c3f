"""One measurement, in the process that `benchmarks.processes` starts: python -m benchmarks.child CASE FOUND.

CASE is JSON, FOUND the file that takes the result. The package is that of the tree on PYTHONPATH, which may be an older
one: what a case's module imports must be in all trees that the case runs on.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

CASES = {
    "stream": "ours",
    "file_to_commit": "ours",
    "stored": "ours",
    "native_stream": "native",
    "session_window_batch": "native",
    "duckdb_batch": "duck",
    "produce": "produce",
    "ours_peer": "peers.ours",
    "kafka_streams_peer": "peers.kafka_streams",
    "flink_peer": "peers.flink",
    "spark_peer": "peers.spark",
    "transform_with_state_peer": "peers.transform_with_state",
    "pathway_peer": "peers.pathway",
    "duckdb_peer": "peers.duck",
    "full_at_once": "windows",
    "more_state": "windows",
    "idle": "windows",
    "load": "ttl",
    "fold": "ttl",
    "expiring": "ttl",
    "updates": "keyed",
    "on_cluster": "cluster",
    "with_kills": "cluster",
}
"""The module of each case's function, which has the case's name."""


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    kind = case["kind"]
    # Only the case's module is imported, so that none pays for what another one measures.
    return getattr(import_module(f"benchmarks.{CASES[kind]}"), kind)(case)


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(run_case(json.loads(sys.argv[1]))))
