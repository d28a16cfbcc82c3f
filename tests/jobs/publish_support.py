"""Rows for pipelines that publish, and the table of [sink.delta] compared with the live view."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psutil
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.compact import compact
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.sink_position import STEPS, Position, newest_position, table_in
from tests.operator_lake import OperatorLake
from tests.sources.kafka_support import Row

US = 1_000_000
UNSEEN = {"state", "final"}
"""Columns of a live view that the table has not."""
Rows = Counter[tuple[Any, ...]]


def some_rows(seed: int, count: int = 40) -> list[Row]:
    rng = random.Random(seed)
    base = 1_700_000_000 * US
    return [
        {"key": f"user-{rng.randrange(5)}", "time_us": base + rng.randrange(600 * US), "v": rng.randrange(9)}
        for _ in range(count)
    ]


def trim(spark: SparkSession, config: Config) -> None:
    """Compact twice: a run trims what the one before it has folded, with `compact.safety` of nothing."""
    for _ in range(2):
        compact(spark, config)


def vacuum_changes(config: Config) -> None:
    """Remove the files that the changelog has no more, as VACUUM does."""
    changelog = deltalake.DeltaTable(f"{config.pipeline.warehouse}/{changelog_of(config).changes}")
    there = set(changelog.file_uris())
    folder = Path(changelog.table_uri.removeprefix("file://"))
    gone = [file for file in folder.glob("*.parquet") if str(file) not in there]
    assert gone, "nothing was trimmed"
    for file in gone:
        file.unlink()


def with_sink(lake: OperatorLake, sink: str, name: str = "sink") -> Config:
    """Return the config of a lake's pipeline with a section of [sink], as text, in a file of this name."""
    path = lake.root / f"{name}.toml"
    path.write_text(f"{lake.path.read_text()}\n{sink}\n")
    return load_config(path)


def position(config: Config) -> Position:
    found = newest_position(table_in(config, Lake))
    assert found is not None
    return found


def rows_of(relation: duckdb.DuckDBPyRelation, names: list[str]) -> Rows:
    found = relation.select(*(f'"{name}"' for name in names)).fetchall()
    return Counter(
        tuple(repr(value) if isinstance(value, (list, dict, datetime)) else value for value in row) for row in found
    )


def assert_in_delta(config: Config) -> Rows:
    """Check that the table, read by deltalake and DuckDB alone, is the live view, and that it names the last batch."""
    assert config.sink.delta is not None
    live = sessionlake.read(config)
    table = deltalake.DeltaTable(config.sink.delta.path)
    names = [name for name in live.columns if name not in UNSEEN]
    assert sorted(field.name for field in table.schema().fields) == sorted(names)
    if config.is_final("delta"):
        last = find_last_batch(Lake.of(config))
        assert last is not None
        live = live.filter(config.section.final_sql(changelog_of(config).end, last.state))
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    found = rows_of(connection.from_arrow(table.to_pyarrow_table()), names)
    assert found == rows_of(live, names)
    assert max(found.values(), default=1) == 1
    last = find_last_batch(Lake.of(config))
    assert last is not None
    assert position(config).seen.batch_id == last.batch_id
    assert table.transaction_version(STEPS) == position(config).step
    return found


def publish_once(path: Path, kill_at: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, which kills itself at a point."""
    env = {**os.environ, "SESSIONLAKE_KILL_AT": kill_at, "PYTHONFAULTHANDLER": "0"}
    return subprocess.run(_publishing(path), env=env, capture_output=True, text=True, timeout=300, check=False)


def assert_publish_killed(path: Path, point: str) -> None:
    """Publish up to a point, at which the process is killed."""
    done = publish_once(path, point)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def publish_until(path: Path, is_enough: Callable[[], bool]) -> bool:
    """Publish, and kill the process, its JVM and its workers all at once as soon as something holds; say whether they were at work until then."""
    with subprocess.Popen(_publishing(path), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while not is_enough() and process.poll() is None:
            time.sleep(0.002)
        at_work = process.poll() is None
        if at_work:
            known = psutil.Process(process.pid)
            for one in [*known.children(recursive=True), known]:
                one.kill()
        told, _ = process.communicate(timeout=60)
    assert at_work or process.returncode == 0, told
    return at_work


def _publishing(path: Path) -> list[str]:
    return [str(Path(sys.executable).with_name("sessionlake")), "publish", str(path), "--once"]
