"""`python -m benchmarks.commits`: what a commit of files to a Delta table takes, through Delta's JVM classes and through deltalake."""

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from sessionlake.engine.spark import build_session
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.kind import CHECKPOINT_INTERVAL
from sessionlake.warehouse.data_file import DataFile
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables

NAME, APP = "session_changelog", "checkpoint"
COLUMNS = ("session_key", "op", "state", "commit_id")
SCHEMA = pa.schema([(name, pa.string()) for name in COLUMNS] + [("batch_id", pa.int64())])
METADATA = {"pipeline": "clicks", "state": {"watermark_us": 1}, "places": {str(n): "host:1" for n in range(64)}}
"""About as long as a batch's."""
Commit = Callable[[list[DataFile], int], None]


def data_files(count: int, batch: int) -> list[DataFile]:
    """Return names of files that are not there: a commit doesn't look."""
    stats = json.dumps({"numRecords": 1000, "minValues": {"batch_id": batch}, "maxValues": {"batch_id": batch}})
    return [DataFile(NAME, f"part-{n:05d}-{batch}.snappy.parquet", 100_000, stats) for n in range(count)]


@contextmanager
def by_jvm(spark: Any, warehouse: str) -> Iterator[Commit]:
    """Commit as the stream does."""
    tables = Tables(spark, warehouse, CHANGELOG)
    known = tables[NAME].latest_version()

    def commit(files: list[DataFile], batch: int) -> None:
        nonlocal known
        known = tables[NAME].commit_files(files, APP, batch, METADATA, after_version=known)

    yield commit


@contextmanager
def by_deltalake(_spark: Any, warehouse: str) -> Iterator[Commit]:
    """Commit through deltalake's public API, with the same look at the commits since."""
    table, lake = DeltaTable(f"{warehouse}/{NAME}"), Lake(warehouse, CHANGELOG)
    schema, known = table.schema(), table.version()

    def commit(files: list[DataFile], batch: int) -> None:
        nonlocal known
        table.update_incremental()
        for version in range(known + 1, table.version() + 1):
            if any(a["appId"] == APP and a["version"] >= batch for a in lake[NAME]._actions(version, "txn")):  # noqa: SLF001
                raise RuntimeError(version)
        now = time.time_ns() // 1_000_000
        table.create_write_transaction(
            [AddAction(f.path, f.size, {}, now, data_change=True, stats=f.stats) for f in files],
            mode="append",
            schema=schema,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": user_metadata(METADATA)},
                max_commit_retries=0,
                app_transactions=[Transaction(APP, batch)],
            ),
        )
        known = table.version()

    yield commit


def history(spark: Any, folder: Path, commits: int) -> None:
    """Make a table of so many commits of one file each, the last ones by the JVM, so that Delta's checkpoint is there."""
    properties = {"checkpointInterval": CHECKPOINT_INTERVAL}
    Tables(spark, str(folder), CHANGELOG)[NAME].create(SCHEMA, "a benchmark", properties=properties)
    with by_jvm(spark, str(folder)) as commit:
        for batch in range(commits):
            commit(data_files(1, batch), batch)


def main() -> None:
    """Print medians, 90th percentiles and largest in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40)
    arguments = parser.parse_args()
    spark = build_session("commits", master="local[2]", little_java=True)
    spark.sparkContext.setLogLevel("ERROR")
    print(f"{'history':>8} {'files':>5} {'way':>10} {'first':>7} {'median':>7} {'p90':>7} {'max':>7}  ms")
    with tempfile.TemporaryDirectory() as root:
        history(spark, Path(root, "warm"), 60)
        for commits in (0, 100, 1000):
            made = Path(root, f"made-{commits}")
            history(spark, made, commits)
            for count in (1, 8, 64):
                for name, way in (("jvm", by_jvm), ("deltalake", by_deltalake)):
                    folder = Path(root, f"{commits}-{count}-{name}")
                    shutil.copytree(made, folder)
                    with way(spark, str(folder)) as commit:
                        taken = []
                        for batch in range(commits, commits + arguments.times):
                            files = data_files(count, batch)
                            started = time.perf_counter()
                            commit(files, batch)
                            taken.append(1000 * (time.perf_counter() - started))
                    first, *rest = taken
                    p90 = statistics.quantiles(rest, n=10)[-1]
                    median = statistics.median(rest)
                    print(
                        f"{commits:8} {count:5} {name:>10} {first:7.1f} {median:7.1f} {p90:7.1f} {max(rest):7.1f}",
                        flush=True,
                    )
                    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
