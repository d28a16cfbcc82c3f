"""The jobs on pipelines of windows by count, against DuckDB over the Delta tables."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
import tomli_w
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, NotNeededError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.publish.final import Reached, full
from sessionlake.jobs.publish.records import to_records
from sessionlake.jobs.rebuild import rebuild
from sessionlake.observe.status import read_status
from sessionlake.operators.counts.operator import CountedWindows
from sessionlake.operators.views import read_live
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.serve.views import live_view
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import fold_point, merged_rows
from tests.jobs.backup.copies import copy_pipeline
from tests.operators.counts.count_support import changes, count_config, count_sections, live, run_files, tumbling

SLICES, WINDOWS = (table.changelog for table in CountedWindows.TABLES)
QUERY = "select window_key, window_start, window_end, event_count, revision from windows_live order by all"


def config_of(root: Path) -> Config:
    return count_config(root, emit={"early": "batch"})


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Four batches, the first two of them folded."""
    root = tmp_path_factory.mktemp("counts")
    config = config_of(root)
    run_files(spark, root, config, range(2))
    compact(spark, config)
    run_files(spark, root, config, range(2, 4))
    return config


@pytest.fixture
def config(ran: Config, tmp_path: Path) -> Config:
    """The same pipeline, to be changed."""
    return copy_pipeline(Path(ran.directory), tmp_path / "copy", config_of)


def folded(config: Config, of: Changelog) -> list[tuple[Any, ...]]:
    """Return what a changelog adds up to, by DuckDB."""
    with duckdb.connect() as database:
        database.register("given", changes(config, of.changes))
        n = of.name
        return database.execute(f"""
            select {n}_key, {n}_start, {n}_end, event_count, revision
            from (select *, row_number() over (partition by {n}_key, {n}_start order by batch_id desc) as rank from given)
            where rank = 1 and op = 'upsert' order by all""").fetchall()


def rows_of(spark: SparkSession, config: Config, of: Changelog) -> list[tuple[Any, ...]]:
    names = (of.key, of.start, of.end, "event_count", "revision")
    return sorted(map(tuple, merged_rows(Tables.of(spark, config), of=of).select(*names).collect()))


def test_compact_folds_windows_and_their_state_and_the_stream_goes_on(spark: SparkSession, config: Config) -> None:
    before = {of: folded(config, of) for of in (WINDOWS, SLICES)}
    report = compact(spark, config)
    tables = Tables.of(spark, config)
    for of in (WINDOWS, SLICES):
        assert rows_of(spark, config, of) == before[of]
        assert fold_point(tables, of=of) == last_batch(tables).batch_id
        stored = tables[of.snapshot].read()
        assert stored.where(f"{of.date} = 0").count() == stored.count() == len(before[of])
    assert report.counts
    run_files(spark, Path(config.directory), config, range(4, 6))
    assert live(spark, config) == tumbling(3, whole=False)


def test_every_way_of_reading_shows_the_same_windows(spark: SparkSession, ran: Config) -> None:
    found = folded(ran, WINDOWS)
    assert query_tables(ran, QUERY, 10_000)[1] == found
    frame = read_live(spark, ran)
    assert (
        sorted(
            tuple(row[:5])
            for row in frame.select(*QUERY.split("select ")[1].split(" from", maxsplit=1)[0].split(", ")).collect()
        )
        == found
    )
    final = {(row["window_key"], row["window_start"]) for row in frame.where("final").collect()}
    assert final == {row[:2] for row in found if row[3] == 3}
    names, rows = find_rows(ran, "a", None, None, 100)
    assert [row[names.index("window_start")] for row in rows] == [row[1] for row in found if row[0] == "a"]
    with pytest.raises(ConfigError, match="lie at no times"):
        find_rows(ran, "a", 0, None, 100)
    statement = live_view(ran, "spark").removesuffix(";").replace("view windows_live", "temp view counted", 1)
    spark.sql(statement)
    assert spark.table("counted").where("final").count() == len(final)


def test_status_reconciles(ran: Config) -> None:
    status = read_status(ran)
    assert status.reconciles
    assert status.counts["accepted"] == 40
    assert status.counts["dead"] == 4


PLANTED = {
    "as_long_as_its_size": "window_end + 1 as window_end",
    "messages_fit": "9l as event_count",
    "full_when_whole": "'early' as trigger",
    "known_trigger": "'late' as trigger",
    "known_op": "'emit' as op",
    "revision_not_after_batch": "9l as revision",
    "id_of_key_and_start": "7l as window_id",
    "key_present": "'' as window_key",
}
"""Defects of rows of the changelog, by the checks that find them."""


def test_checks_hold_and_each_fails_on_its_defect(spark: SparkSession, config: Config) -> None:
    from sessionlake.quality.run import run_quality

    lax = config.quality.model_copy(update={"max_dead_rate": 1, "max_null_key_rate": 1})
    config = config.model_copy(update={"quality": lax})
    report = run_quality(spark, config)
    assert not report.failed, report.notes
    assert report.counts["checks"] == report.counts["passed"] > 30
    tables = Tables.of(spark, config)
    version = tables["window_changelog"].latest_version()
    row = tables["window_changelog"].read(version).where("batch_id = 2 and event_count = 3").limit(1)
    with tables.settings({USER_METADATA: user_metadata({"copied": True, "maintenance": {"job": "test"}})}):
        for defect in PLANTED.values():
            column = defect.rpartition(" as ")[2]
            kept = [name for name in row.columns if name != column]
            planted = row.selectExpr(*kept, defect).select(*row.columns)
            planted.write.format("delta").mode("append").save(tables["window_changelog"].uri)
        held = spark.sql(f"select * from {tables['windows'].sql_name()} limit 1")
        held.write.format("delta").mode("append").save(tables["windows"].uri)
    broken = run_quality(spark, config)
    names = {note.split(": ")[1] for note in broken.notes if note.startswith("critical")}
    assert {f"window_changelog.{check}" for check in (*PLANTED, "one_change_a_batch")} | {
        "windows.one_row_a_window",
        "windows.events_add_up",
    } <= names


def test_publish_sends_full_windows_once(spark: SparkSession, ran: Config) -> None:
    tables, last = Tables.of(spark, ran), last_batch(Tables.of(spark, ran))
    first = Reached(1, 0, last.version, {"events": {"0": 20}})
    now = Reached(last.batch_id, 0, last.version, last.state["positions"])
    every = full(tables, ran.section, Reached(), now)
    records = [json.loads(row["key"]) for row in to_records(every, WINDOWS).collect()]
    wanted = [row for row in folded(ran, WINDOWS) if row[3] == 3]
    assert sorted((r["window_key"], r["window_start"]) for r in records) == [row[:2] for row in wanted]
    later = {(row["window_key"], row["window_start"]) for row in full(tables, ran.section, first, now).collect()}
    assert later == {row[:2] for row in wanted if row[4] > 1}


def test_expire_removes_full_windows_only(spark: SparkSession, config: Config) -> None:
    before = folded(config, WINDOWS)
    expire(spark, config, where="total < 1000")
    run(spark, config, once=True)
    assert folded(config, WINDOWS) == [row for row in before if row[3] < 3]
    # What is numbered goes on.
    run_files(spark, Path(config.directory), config, range(4, 6))
    removed = {row[:2] for row in before if row[3] == 3}
    assert live(spark, config) == [row for row in tumbling(3, whole=False) if row[:2] not in removed]


def test_forget_removes_a_key_from_windows_and_state(spark: SparkSession, config: Config) -> None:
    report = forget(spark, config, ["a"])
    assert not report.failed, report.notes
    assert report.counts["found"] == 0
    assert report.counts["tombstones"] > 0
    for of in (WINDOWS, SLICES):
        assert all(row[0] != "a" for row in rows_of(spark, config, of))
        assert "a" not in changes(config, of.changes)[of.key].to_pylist()


def test_rebuild_gives_the_same_windows(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    rebuilt, path = tmp_path / "new", Path(config.directory, "config.toml")
    path.write_text(tomli_w.dumps(count_sections(emit={"early": "batch"})))
    rebuild(spark, path, str(rebuilt))
    moved = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"warehouse": str(rebuilt)})})
    names = [row[:4] for row in folded(config, WINDOWS)]
    assert [row[:4] for row in folded(moved, WINDOWS)] == names


def test_jobs_of_late_events_refuse_in_one_line(spark: SparkSession, ran: Config) -> None:
    with pytest.raises(NotNeededError, match="no late events") as raised:
        reprocess_late(spark, ran)
    assert "\n" not in str(raised.value)
    with pytest.raises(NotNeededError, match=r"^backfill: a \[window\] by count depends on the order") as refused:
        backfill(spark, ran, from_us=0, to_us=10)
    assert "\n" not in str(refused.value)
