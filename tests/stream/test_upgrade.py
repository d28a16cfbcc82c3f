"""Warehouses that earlier versions have written (tests/fixtures): they run on, are compacted, backfilled, saved and put back."""

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.backfill.ledger import taken_corrections
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.observe.status import read_status
from sessionlake.operators.run import run
from sessionlake.reading import read_sessions
from sessionlake.stream.input_log import batch_inputs
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.history import FORMAT
from sessionlake.warehouse.outcomes import told_from
from sessionlake.warehouse.tables import Tables
from tests.support import make_config, write_rows

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("warehouse-*.tar.gz"))
SESSIONS = [("a", 100, 1, 0), ("a", 150, 1, 7), ("b", 101, 2, 2), ("c", 102, 1, 2), ("f", 105, 1, 5)]


def sessions(spark: SparkSession, config: Config) -> list[tuple[str, int, int, int]]:
    live = read_sessions(spark, config).select("session_key", F.unix_micros("session_start"), "event_count", "total")
    return sorted(tuple(row) for row in live.collect())


OLDEST = [path for path in FIXTURES if "586e742" in path.name]
earlier = pytest.mark.parametrize(
    "archive",
    [pytest.param(path, marks=pytest.mark.slow) if path in OLDEST else path for path in FIXTURES],
    ids=lambda path: path.name.removesuffix(".tar.gz"),
)
whole = pytest.mark.parametrize("archive", [path for path in FIXTURES if path not in OLDEST], ids=str)
"""Those with the source files, the stores and an archive of events."""


def unpacked(root: Path, archive: Path) -> Config:
    """Unpack a warehouse; its checkpoint then knows the source files, where it has some, by their new place."""
    with tarfile.open(archive) as files:
        files.extractall(root, filter="data")
    if not (root / "at").exists():
        return make_config(root)
    before = (root / "at").read_text()
    for file in (root / "warehouse" / "_checkpoints").rglob("*"):
        if file.is_file() and not file.name.endswith(".crc") and before in (text := file.read_text()):
            file.write_text(text.replace(before, str(root)))
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return make_config(root, pipeline={"archive": True})


@earlier
def test_warehouse_of_an_earlier_version_runs_on(spark: SparkSession, tmp_path: Path, archive: Path) -> None:
    config = unpacked(tmp_path, archive)
    tables = Tables(spark, config.pipeline.warehouse)
    assert sessions(spark, config) == [*SESSIONS, ("g", 160, 1, 5)]
    rows = [{"key": "g", "time_us": 165, "v": 1}, {"key": "h", "time_us": 170, "v": 2}]
    write_rows(tmp_path, "new.json", rows)
    committed: list[BatchCommit] = []
    run(spark, config, once=True, on_commit=committed.append)
    assert sessions(spark, config) == [*SESSIONS, ("g", 160, 2, 6), ("h", 170, 1, 2)]
    newest = tables[schemas.CHANGELOG].last_commit()
    assert newest is not None
    assert newest.metadata["format"] == FORMAT
    assert read_status(config).reconciles
    stores = (tmp_path / "at").exists()
    assert bool(committed[0].places.restored) != stores, "stores of an earlier version are opened as they are"


@pytest.mark.slow
@whole
def test_warehouse_of_an_earlier_version_ends_equal_to_one_made_anew(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    config = unpacked(tmp_path, archive)
    tables = Tables(spark, config.pipeline.warehouse)
    late = tables[schemas.LATE_EVENTS].read().count()
    report = backfill(spark, config, from_us=0, to_us=86_400_000_000 - 1, dry_run=True)
    # Nothing differs but by the late events that wait: one of c, and one of a key of its own.
    found = {name: report.counts[name] for name in ("sessions", "unchanged", "corrections", "late_included")}
    assert (
        found
        == {"sessions": 6, "unchanged": 5, "corrections": 2, "late_included": late}
        == {**found, "late_included": 2}
    )
    other = tmp_path / "anew"
    other.mkdir()
    (other / "events").symlink_to(tmp_path / "events")
    anew = make_config(other)
    run(spark, anew, once=True)
    write_rows(tmp_path, "4.json", [{"key": "g", "time_us": 165, "v": 1}])
    run(spark, config, once=True)
    compact(spark, config)
    run(spark, anew, once=True)
    # d was expired and e forgotten by jobs.
    events = [json.loads(line) for line in (tmp_path / "events" / "0.json").read_text().splitlines()]
    removed = {row["key"] for row in events if row["key"] in "de"}
    assert sessions(spark, config) == [row for row in sessions(spark, anew) if row[0] not in removed]
    assert Tables(spark, anew.pipeline.warehouse)[schemas.LATE_EVENTS].read().count() == late


@pytest.mark.slow
@earlier
def test_corrections_of_an_earlier_version_and_of_this_one_are_told(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    """The archive's batches have taken the tombstone of `d`, in a file that `forget` copied, and left no outcome of it."""
    config = unpacked(tmp_path, archive)
    tables = Tables(spark, config.pipeline.warehouse)
    (expired,) = tables[schemas.CORRECTIONS].read().collect()
    last = last_batch(tables).batch_id

    def told() -> dict[str, tuple[str, bool]]:
        inputs = batch_inputs(tables, config, last_batch(tables).batch_id)
        rows = taken_corrections(tables, inputs).collect()
        assert len({row.correction_id for row in rows}) == len(rows)
        return {row.correction_id: (row.outcome, row.batch_id <= last) for row in rows}

    assert told() == {expired.correction_id: ("applied", True)}
    tombstone = {"correction_id": "new", "kind": "tombstone", "session_key": "b", "revision": 99, "session_start": 101}
    # Made when the earlier batches were, for all one can tell: they have not taken it all the same.
    table = pa.Table.from_pylist([{**tombstone, "created_at": 0}], schema=schemas.CORRECTIONS_SCHEMA)
    tables[schemas.CORRECTIONS].append_rows(table)
    assert told() == {expired.correction_id: ("applied", True)}
    run(spark, config, once=True)
    assert told_from(tables) == last + 1
    # Of rows in a new file the log does not say which batch read them: what has an outcome is not looked for there.
    spark.sql(f"optimize {tables[schemas.CORRECTIONS].sql_name()}").collect()
    assert told() == {expired.correction_id: ("applied", True), "new": ("stale", False)}
    assert read_status(config).reconciles


@pytest.mark.slow
@earlier
def test_warehouse_of_an_earlier_version_is_compacted_saved_and_put_back(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    config = unpacked(tmp_path, archive)
    compact(spark, config, method="merge")
    backup(spark, config, str(tmp_path / "saved"))
    (tmp_path / "other").mkdir()
    other = make_config(tmp_path / "other")
    restore(spark, other, str(tmp_path / "saved"))
    write_rows(tmp_path / "other", "newer.json", [{"key": "g", "time_us": 165, "v": 1}])
    run(spark, other, once=True)
    assert sessions(spark, other) == [*SESSIONS, ("g", 160, 2, 6)]
    assert last_batch(Tables(spark, other.pipeline.warehouse)).batch_id > 0
    assert not Tables(spark, other.pipeline.warehouse)[schemas.SESSIONS].files().isEmpty()
