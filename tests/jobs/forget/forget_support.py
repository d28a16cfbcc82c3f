"""A pipeline in which two keys stand wherever a key can, and a search for them that shares nothing with the job's."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.config.load import Config
from sessionlake.jobs.expire import expire
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.operators.sessions.table import TOPIC_TOMBSTONES
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from tests.support import correction_of, make_config, write_rows

ANNA = "anna.longer-than-32-characters@example.org"
BO = 'bö "the" b'
GONE = [ANNA, BO]
STAY = ["carl", "anna", "b"]
SECTIONS: dict[str, Any] = {"pipeline": {"archive": True}, "source": {"max_files_per_batch": 2}}


def build(spark: SparkSession, root: Path) -> Config:
    """Run a pipeline over cold, warm, late, dead and malformed rows; then corrections that wait, and traces of old times."""
    config = make_config(root, **SECTIONS)
    for batch in range(4):
        times = [(key, 1000 + 100 * batch + 2 * i) for i, key in enumerate([*GONE, *STAY])]
        rows: list[Any] = [{"key": key, "time_us": at, "v": at} for key, at in times]
        if batch > 1:
            rows += [{"key": key, "time_us": 1065, "v": 1} for key in (ANNA, "carl")]
            rows += [{"key": key, "time_us": 10, "v": 1} for key in (*GONE, "carl")]
            rows += [json.dumps({"key": key, "v": 2}) + " broken" for key in (*GONE, "carl")]
            rows += [{"key": "", "time_us": 1, "v": 7, "note": "anna.longer"}]
        write_rows(root, f"{batch}.json", rows)
    run(spark, config, once=True)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    _snapshot(spark, tables)
    _archive(spark, tables)
    tables[schemas.CHANGELOG].checkpoint()
    expire(spark, config, where=f"session_key = '{ANNA}' and event_count > 99", run_id="named")
    _crash_leftovers(tables)
    tables[schemas.CORRECTIONS].append_rows(_restated(tables))
    return config


def _snapshot(spark: SparkSession, tables: Tables) -> None:
    """Fold all sessions, as compaction does, those of a key hidden by a deletion vector, in a file of its own with a key that stays."""
    name = f"delta.`{tables[schemas.SESSIONS].uri}`"
    spark.sql(f"alter table {name} set tblproperties (delta.enableDeletionVectors = true)")
    columns = [
        c.replace("session_date", "to_date(session_start) session_date")
        for c in tables[schemas.SESSIONS].read().columns
    ]
    rows = tables[schemas.CHANGELOG].read().where("op = 'upsert'").selectExpr(*columns)
    with tables.settings({USER_METADATA: user_metadata({"maintenance": {"job": "compact"}})}):
        for some in (f"session_key in ('{ANNA}', 'carl')", f"session_key not in ('{ANNA}', 'carl')"):
            rows.where(some).coalesce(1).write.format("delta").mode("append").save(tables[schemas.SESSIONS].uri)
        spark.sql(f"delete from {name} where session_key = '{ANNA}'")


def _archive(spark: SparkSession, tables: Tables) -> None:
    """Delete from the archive by hand, and let the topic, which there is none of, have brought tombstones."""
    for _ in range(2):
        condition = "key = 'carl' and unix_micros(event_time) > 1200"
        spark.sql(f"delete from delta.`{tables[schemas.EVENTS].uri}` where {condition}")
    rows = [{"key": key, "correction_id": f"t{i}"} for i, key in enumerate((*GONE, "carl"))]
    tables[schemas.TOPIC_TOMBSTONES].append_rows(pa.Table.from_pylist(rows, schema=TOPIC_TOMBSTONES))


def _crash_leftovers(tables: Tables) -> None:
    """Leave a whole data file, and half of one, that no commit names."""
    folder = Path(tables[schemas.CHANGELOG].uri)
    data = next(f for f in sorted(folder.glob("*.parquet")) if pq.read_table(f).num_rows)
    (folder / "part-00000-crashed.snappy.parquet").write_bytes(data.read_bytes())
    (folder / "part-00001-crashed.snappy.parquet").write_bytes(data.read_bytes()[: data.stat().st_size // 2])


def _restated(tables: Tables) -> pa.Table:
    """Return partials of both a key that goes and one that stays, as the job for late events would send them."""
    columns = ["session_key", "session_start", "session_end", "event_count", "state"]
    rows = tables[schemas.CHANGELOG].read().where("op = 'upsert'").orderBy("session_end").select(*columns).collect()
    newest = {row.session_key: correction_of(row.asDict(), *columns) for row in rows}
    sent = [{**newest[key], "correction_id": f"r{key}", "kind": "restate", "job": "late"} for key in (ANNA, "carl")]
    return pa.Table.from_pylist(
        [{**row, "state": bytes(row["state"])} for row in sent], schema=schemas.CORRECTIONS_SCHEMA
    )


def traces(config: Config, keys: list[str] = GONE) -> list[str]:
    """Return every file of warehouse and stores in which a key stands: as a text in Parquet, or as bytes."""
    roots = (Path(config.pipeline.warehouse), Path(config.pipeline.store))
    forms = {form for key in keys for form in _forms(key)}
    files = [(root, file) for root in roots for file in sorted(root.rglob("*")) if file.is_file()]
    return [str(file.relative_to(root)) for root, file in files if any(_stands_in(file, form) for form in forms)]


def _forms(key: str) -> set[str]:
    once = {json.dumps(key, ensure_ascii=plain)[1:-1] for plain in (True, False)}
    twice = {json.dumps(form, ensure_ascii=plain)[1:-1] for form in once for plain in (True, False)}
    # Statistics hold the first 32 characters of a long text.
    return {form[:32] for form in {key, *once, *twice}}


def _stands_in(file: Path, form: str) -> bool:
    if file.suffix == ".parquet":
        try:
            return form in str(pq.ParquetFile(file).read().to_pylist())
        except pa.ArrowInvalid:
            return "crashed" in file.name  # unreadable: of ours are those that a crash left
    return form.encode() in file.read_bytes()


def kept_rows(spark: SparkSession, config: Config) -> dict[str, list[str]]:
    """Return the rows of the keys that stay, and of none, by table."""
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    forms = {form for key in GONE for form in _forms(key)}
    kept = {}
    for name in (
        schemas.CHANGELOG,
        schemas.SESSIONS,
        schemas.LATE_EVENTS,
        schemas.DEAD_LETTERS,
        schemas.EVENTS,
        schemas.TOPIC_TOMBSTONES,
    ):
        rows = ["\n".join(map(str, row)) for row in tables[name].read().collect()]
        kept[name] = sorted(row for row in rows if not any(form in row for form in forms))
    return kept


def live(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    rows = read_sessions(spark, config).selectExpr(
        "session_key", "unix_micros(session_start) a", "unix_micros(session_end) b", "event_count", "total"
    )
    return sorted(tuple(row) for row in rows.collect())


@contextmanager
def stream(path: Path, config: Config) -> Iterator[subprocess.Popen[str]]:
    """Run the stream of a config's file in a process of its own; it has the store's lock when this yields."""
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            until(process, lambda: holder(config) == str(process.pid))
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def holder(config: Config) -> str:
    """Return the process that took the store's lock last; trying the lock could keep the stream from it."""
    return Path(config.store_dir, "LOCK").read_text()


def until(process: subprocess.Popen[str], done: Callable[[], bool]) -> None:
    while not done():
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            raise AssertionError(f"the stream ended: {process.stdout.read() if process.stdout else ''}")
