"""The jobs on pipelines of keyed tables, against DuckDB over the Delta tables."""

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
import tomli_w
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import JobError, NotNeededError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.publish.records import to_records
from sessionlake.jobs.rebuild import rebuild
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.operators.keyed.table import TABLE
from sessionlake.operators.views import read_live
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.serve.views import live_view
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import fold_point, latest_changes
from tests.jobs.backup.copies import copy_pipeline
from tests.operators.keyed.table_support import (
    EVENTS,
    MINUTE,
    changes,
    latest,
    live,
    run_files,
    table_config,
    table_sections,
)
from tests.support import write_rows

QUERY = "select table_key, event_time, v, s, revision from table_live order by all"


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Four batches, the first two of them folded."""
    root = tmp_path_factory.mktemp("tables")
    config = table_config(root)
    run_files(spark, root, config, range(2))
    compact(spark, config)
    run_files(spark, root, config, range(2, 4))
    return config


@pytest.fixture
def config(ran: Config, tmp_path: Path) -> Config:
    """The same pipeline, to be changed."""
    return copy_pipeline(Path(ran.directory), tmp_path / "copy", table_config)


def folded(config: Config, *, deleted: bool = False) -> list[tuple[Any, ...]]:
    """Return what the changelog adds up to, by DuckDB; with `deleted` the deletions."""
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("given", changes(config))
        return database.execute(f"""
            select table_key, event_time, v, s, revision
            from (select *, row_number() over (partition by table_key order by batch_id desc) as rank from given)
            where rank = 1 and op = '{"delete" if deleted else "upsert"}' order by all""").fetchall()


def snapshot(spark: SparkSession, config: Config, where: str) -> int:
    return Tables.of(spark, config)[TABLE.snapshot].read().where(where).count()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["merge", "rewrite"])
def test_compact_folds_rows_and_deletions_and_the_stream_goes_on(
    spark: SparkSession, config: Config, method: str
) -> None:
    rows, gone = folded(config), folded(config, deleted=True)
    assert rows
    assert gone
    report = compact(spark, config, method=method)
    tables = Tables.of(spark, config)
    assert fold_point(tables) == last_batch(tables).batch_id
    assert query_tables(config, QUERY, 100)[1] == rows
    assert (snapshot(spark, config, "not deleted"), snapshot(spark, config, "deleted")) == (len(rows), len(gone))
    assert report.counts["table_snapshot_upserted"] > 0
    assert report.counts["deletions_trimmed"] == 0
    # The stores know deletions from the snapshot alone once the changelog is trimmed.
    shutil.rmtree(config.driver_store_dir)
    run_files(spark, Path(config.directory), config, range(4, 6))
    assert live(spark, config) == latest(EVENTS)


@pytest.mark.slow
def test_compact_forgets_deletions_that_nothing_can_meet(spark: SparkSession, config: Config) -> None:
    compact(spark, config)
    assert snapshot(spark, config, "deleted") > 0
    write_rows(Path(config.directory), "far.json", [{"key": "far", "time_us": 4_000 * MINUTE, "id": "x", "op": "c"}])
    run(spark, config, once=True)
    dry = compact(spark, config, dry_run=True)
    report = compact(spark, config)
    assert dry.counts["deletions_trimmed"] == report.counts["deletions_trimmed"] > 0
    assert snapshot(spark, config, "deleted") == 0
    assert query_tables(config, QUERY, 100)[1] == folded(config)


@pytest.mark.slow
def test_every_way_of_reading_shows_the_same_rows(spark: SparkSession, ran: Config) -> None:
    found = folded(ran)
    names = QUERY.split("select ")[1].split(" from", maxsplit=1)[0].split(", ")
    assert query_tables(ran, QUERY, 100)[1] == found
    frame = read_live(spark, ran).withColumn("event_time", F.unix_micros("event_time"))
    assert sorted(tuple(row) for row in frame.select(*names).collect()) == [_micros(row) for row in found]
    columns, rows = find_rows(ran, found[0][0], None, None, 10)
    assert [tuple(row[columns.index(name)] for name in names) for row in rows] == found[:1]
    statement = live_view(ran, "spark").removesuffix(";").replace("view table_live", "temp view tabled", 1)
    spark.sql(statement)
    assert spark.table("tabled").columns == frame.columns
    assert spark.table("tabled").count() == len(found)
    trino = live_view(ran, "trino", "delta.test")
    assert "table_id" not in trino


def _micros(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], round(row[1].timestamp() * 1e6), *row[2:]


@pytest.mark.slow
def test_status_reconciles_until_a_count_is_lost(ran: Config) -> None:
    status = read_status(ran)
    assert status.reconciles
    assert (status.counts["accepted"], status.counts["dead"]) == (40, 4)
    assert status.counts["accepted"] == sum(status.counts[name] for name in TABLE.counts)


PLANTED = {
    "key_present": "'' as table_key",
    "time_present": "cast(null as timestamp) as event_time",
    "known_op": "'emit' as op",
    "known_cause": "'tombstone' as cause",
    "revision_is_batch": "9l as revision",
    "batch_committed": "99l as batch_id",
}
"""Defects of rows of the changelog, by the checks that find them."""


IN_SNAPSHOT = {
    "key_present": {"table_key": "''"},
    "time_present": {"table_key": "'y'", "event_time": "cast(null as timestamp)"},
    "revision_committed": {"table_key": "'z'", "revision": "-1l"},
}
"""The same of rows of the snapshot, of keys that the changelog has not."""


@pytest.mark.slow
def test_checks_hold_and_each_fails_on_its_defect(spark: SparkSession, config: Config) -> None:
    from sessionlake.quality.run import run_quality

    lax = config.quality.model_copy(update={"max_dead_rate": 1, "max_null_key_rate": 1})
    config = config.model_copy(update={"quality": lax})
    report = run_quality(spark, config)
    assert not report.failed, report.notes
    assert report.counts["checks"] == report.counts["passed"] > 25
    tables = Tables.of(spark, config)
    row = tables[TABLE.changes].read(tables[TABLE.changes].latest_version()).where("op = 'upsert'").limit(1)
    with tables.settings({USER_METADATA: user_metadata({"copied": True, "maintenance": {"job": "test"}})}):
        for defect in PLANTED.values():
            column = defect.rpartition(" as ")[2]
            kept = [name for name in row.columns if name != column]
            planted = row.selectExpr(*kept, defect).select(*row.columns)
            planted.write.format("delta").mode("append").save(tables[TABLE.changes].uri)
        held = tables[TABLE.snapshot].read(tables[TABLE.snapshot].latest_version()).limit(1)
        for keys in ({}, *IN_SNAPSHOT.values()):
            held.withColumns({name: F.expr(sql) for name, sql in keys.items()}).write.format("delta").mode(
                "append"
            ).save(tables[TABLE.snapshot].uri)
        name = tables[schemas.BATCHES].sql_name()
        spark.sql(f"update {name} set unchanged = unchanged + 1 where batch_id = 0")
    broken = run_quality(spark, config)
    names = {note.split(": ")[1] for note in broken.notes if note.startswith("critical")}
    assert {f"table_changelog.{check}" for check in (*PLANTED, "one_change_a_batch")} | {
        "table_snapshot.one_row_a_key",
        *(f"table_snapshot.{check}" for check in IN_SNAPSHOT),
        "events.accepted_placed",
    } <= names
    assert not read_status(config).reconciles


@pytest.mark.slow
def test_publish_sends_rows_and_null_for_those_deleted(spark: SparkSession, ran: Config) -> None:
    tables = Tables.of(spark, ran)
    sent = to_records(latest_changes(tables[TABLE.changes].read(), TABLE), TABLE).collect()
    values = {json.loads(row["key"])["table_key"]: row["value"] for row in sent}
    rows = {row[0]: row for row in folded(ran)}
    assert values.keys() == rows.keys() | {row[0] for row in folded(ran, deleted=True)}
    for key, value in values.items():
        if key not in rows:
            assert value is None
        else:
            record = json.loads(value)
            assert set(record) == {"table_key", "event_time", "revision", "v", "s", "event_id"}
            assert (record["v"], record["s"]) == rows[key][2:4]


@pytest.mark.slow
def test_expire_deletes_rows_by_age_and_by_sql_and_late_updates_do_not_bring_them_back(
    spark: SparkSession, config: Config
) -> None:
    compact(spark, config)
    rows = folded(config)
    oldest, negative = rows[0][0], {row[0] for row in rows if row[2] is not None and row[2] < 0}
    spark.createDataFrame([(oldest,)], "name string").write.format("delta").save(f"{config.directory}/gone")
    asked = {
        "where": "table.v < 0 or exists (select 1 from gone where name = table_key)",
        "tables": {"gone": f"{config.directory}/gone"},
        "max_share": 1.0,
    }
    assert expire(spark, config, **asked, dry_run=True).counts["matched"] == len(negative | {oldest})
    # The share is of the rows that are there; deletions, which the snapshot has, too, are none.
    with pytest.raises(JobError, match=rf"remove {len(negative | {oldest})} of {len(rows)} rows"):
        expire(spark, config, **{**asked, "max_share": (len(negative | {oldest}) - 0.5) / len(rows)}, run_id="less")
    report = expire(spark, config, **asked, run_id="r")
    assert report.counts["expired"] == len(negative | {oldest}) > 1
    assert expire(spark, config, **asked, run_id="r").counts == report.counts
    run(spark, config, once=True)
    left = [row for row in rows if row[0] not in negative | {oldest}]
    assert folded(config) == query_tables(config, QUERY, 100)[1] == left
    assert read_status(config).reconciles
    # An update as old as the row was does not bring it back, from stores that are restored either.
    shutil.rmtree(config.driver_store_dir)
    time_us = round(rows[0][1].timestamp() * 1e6)
    write_rows(Path(config.directory), "again.json", [{"key": oldest, "time_us": time_us - 1, "id": "x", "op": "c"}])
    run(spark, config, once=True)
    assert folded(config) == left
    assert expire(spark, config, ttl="1 day", max_share=1.0, run_id="all").counts["expired"] == len(left)
    run(spark, config, once=True)
    assert folded(config) == []


@pytest.mark.slow
def test_forget_removes_a_key_and_its_deletion(spark: SparkSession, config: Config) -> None:
    compact(spark, config)
    rows, gone = folded(config), folded(config, deleted=True)
    keys = [rows[0][0], gone[0][0]]
    report = forget(spark, config, keys)
    assert not report.failed, report.notes
    assert report.counts["found"] == 0
    assert report.counts["tombstones"] == 1
    assert not set(changes(config)[TABLE.key].to_pylist()) & set(keys)
    assert snapshot(spark, config, f"table_key in ('{keys[0]}', '{keys[1]}')") == 0
    run_files(spark, Path(config.directory), config, range(4, 6))
    kept = [row for row in latest(EVENTS) if row[0] not in keys]
    assert [row for row in live(spark, config) if row[0] not in keys] == kept


@pytest.mark.slow
def test_rebuild_gives_the_same_table(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    rebuilt, path = tmp_path / "new", Path(config.directory, "config.toml")
    path.write_text(tomli_w.dumps(table_sections()))
    rebuild(spark, path, str(rebuilt))
    moved = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"warehouse": str(rebuilt)})})
    assert [row[:4] for row in folded(moved)] == [row[:4] for row in folded(config)]


@pytest.mark.slow
def test_backup_restored_goes_on(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    before = folded(config)
    backup(spark, config, str(tmp_path / "saved"))
    places = {"warehouse": str(tmp_path / "restored"), "store": str(tmp_path / "stores")}
    moved = config.model_copy(update={"pipeline": config.pipeline.model_copy(update=places)})
    restore(spark, moved, str(tmp_path / "saved"))
    assert query_tables(moved, QUERY, 100)[1] == before
    run_files(spark, Path(config.directory), moved, range(4, 6))
    assert live(spark, moved) == latest(EVENTS)


@pytest.mark.slow
def test_jobs_that_a_table_has_no_need_of_refuse_in_one_line(spark: SparkSession, ran: Config) -> None:
    told = []
    for job in (
        lambda: reprocess_late(spark, ran),
        lambda: backfill(spark, ran, from_us=0, to_us=10),
        lambda: redeem(spark, ran, reasons=["null key"]),
    ):
        with pytest.raises(NotNeededError) as raised:
            job()
        told.append(str(raised.value))
    assert all("\n" not in text for text in told)
    assert [text.partition(":")[0] for text in told] == ["reprocess-late", "backfill", "redeem"]
