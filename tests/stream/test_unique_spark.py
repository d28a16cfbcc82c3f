"""Each event once on Spark: beside the oracles, with stores lost, other shards, and the setting changed between batches."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.errors import PipelineStateError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.forget import forget
from sessionlake.observe.status import read_status
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.stream.unique.tables import hashed as hashed_ids
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, SECOND, crashes, events, write_events
from tests.operator_forms import FORMS
from tests.operator_lake import MINUTE_US, OperatorLake
from tests.operators_table import without_revisions


@pytest.mark.parametrize("name", ["unique session", pytest.param("unique window", marks=pytest.mark.slow)])
def test_duplicates_of_earlier_batches_are_found_whatever_happened_to_the_stores(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    lake: OperatorLake = FORMS[name](tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run(spark, lake.config, once=True)
    shutil.rmtree(lake.stores)
    lake.configure(shards=2)
    lake.write_files(SECOND)
    run(spark, lake.config, once=True)
    lake.check()
    assert lake.sent() == lake.answer()
    status = read_status(lake.config)
    assert status.reconciles
    totals = lake.totals()
    tables = Tables.of(spark, lake.config)
    assert tables[schemas.DUPLICATES].read().count() == totals["duplicate"]
    ids = tables[schemas.EVENT_IDS].read()
    assert (
        ids.count()
        == totals["accepted"] + totals["late"]
        == ids.dropDuplicates(["key", "event_time", "id_hash"]).count()
    )
    for table in (schemas.LATE_EVENTS, schemas.DEAD_LETTERS):
        texts = tables[table].read()
        assert texts.count() == texts.where("get_json_object(raw, '$.key') <=> key or raw = '{broken'").count()
    late = tables[schemas.LATE_EVENTS].read().where("not partly" if name == "unique window" else "true")
    secret = last_batch(tables).settings.unique_secret
    assert len(secret) == 32
    hashed = hashed_ids(late.select("key", "event_time", "event_id"), 0, secret)
    assert hashed.join(ids, ["key", "event_time", "id_hash"], "left_anti").count() == 0


@pytest.mark.slow
def test_identities_are_kept_by_jobs_and_missed_if_they_are_gone(spark: SparkSession, tmp_path: Path) -> None:
    lake: OperatorLake = FORMS["unique session"](tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run(spark, lake.config, once=True)
    tables = Tables.of(spark, lake.config)
    before = tables[schemas.EVENT_IDS].read().count()
    compact(spark, lake.config)
    oldest = last_batch(tables).watermark_us - 40 * MINUTE_US
    kept = tables[schemas.EVENT_IDS].read().select(F.unix_micros(F.min("event_time")), F.count("*")).collect()[0]
    assert kept[0] >= oldest
    assert 0 < kept[1] < before
    key = tables[schemas.EVENT_IDS].read().first().key
    forget(spark, lake.config, [key], run_id="f")
    assert not tables[schemas.EVENT_IDS].read().where(F.col("key") == key).count()
    assert not tables[schemas.DUPLICATES].read().where(F.col("key") == key).count()
    strict = lake.config.quality.model_copy(update={"max_duplicate_rate": 0.0})
    report = run_quality(spark, lake.config.model_copy(update={"quality": strict}), only=["events"], dry_run=True)
    assert any("duplicate_rate" in note for note in report.notes), report.notes
    assert not any("counts_reconcile" in note for note in report.notes), report.notes
    assert not any("ids_counted" in note or "taken_once" in note for note in report.notes), report.notes
    lake.write_files(SECOND)
    run(spark, lake.config, once=True)
    # Copies of the key's erased events come as new ones.
    sent, answer = (
        without_revisions(lake, [row for row in rows if row[0] != key]) for rows in (lake.sent(), lake.answer())
    )
    assert sent == answer
    shutil.rmtree(lake.warehouse / schemas.EVENT_IDS)
    with pytest.raises(PipelineStateError, match=r"^table 'event_ids': is missing"):
        run(spark, lake.config, once=True)


@pytest.mark.slow
def test_another_length_or_none_restores_the_stores(spark: SparkSession, tmp_path: Path) -> None:
    lake: OperatorLake = FORMS["unique session"](tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run(spark, lake.config, once=True)
    lines = [line for line in events(FIRST[-1]) if line != "{broken"]
    found, since = [], []
    last_setting = 'unique_for = "30 minutes"\nduplicates = "number"'
    for number, setting in enumerate(('unique_for = "40 minutes"', "", last_setting)):
        lake.configure()
        lake.path.write_text(lake.path.read_text().replace('unique_for = "30 minutes"', setting))
        write_events(lake.events / f"{number + 90}.json", number + 90, lines)
        counts = run(spark, lake.config, once=True).counts
        found.append((counts["duplicate"], counts["accepted"] + counts["late"]))
        last = last_batch(Tables.of(spark, lake.config))
        since.append((dict(last.settings.unique_since), last.batch_id))
    (first, fresh), (none, again), (last, _) = found
    assert first > 0 == fresh, "all were remembered under the other length"
    assert none == 0 < again
    # What came without the setting is not known; the events of before it are.
    assert last == first
    (always, _), (never, off), (again_since, _) = since
    assert (always, never, again_since) == ({"events": 0}, {}, {"events": off + 1})
    assert read_status(lake.config).unique_since == again_since
    # The last batch only counts them.
    tables = Tables.of(spark, lake.config)
    assert not tables[schemas.DUPLICATES].read().where(F.col("batch_id") == last_batch(tables).batch_id).count()


@pytest.mark.slow
def test_an_interrupted_batch_ends_as_it_was_begun_though_its_tables_are_written_no_more(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake: OperatorLake = FORMS["unique session"](tmp_path / "lake", tmp_path / "events")
    without = lake.path.read_text().replace('\nunique_for = "30 minutes"', "").replace("keep_replaced = true\n", "")
    lake.write_files(FIRST)
    run(spark, lake.config, once=True)
    lines = [line for line in events(FIRST[-1]) if line != "{broken"]
    write_events(lake.events / "90.json", 90, lines)
    crashes(spark, lake, monkeypatch, "after_duplicates")
    lake.path.write_text(without)
    run(spark, lake.config, once=True)
    tables = Tables.of(spark, lake.config)
    last = last_batch(tables)
    found = tables[schemas.DUPLICATES].read().where(F.col("batch_id") == last.batch_id).count()
    assert last.counts["duplicate"] == found > 0
    # A driver of before, which writes these tables still, is refused there as it is everywhere.
    *terms, of_side = (
        sum(tables[name].term_in(version) is not None for version in tables[name].versions())
        for name in (schemas.EVENT_IDS, schemas.DUPLICATES, schemas.REPLACED_ROWS, schemas.LATE_EVENTS)
    )
    assert terms == [3, 3, 3] == [of_side] * 3
    write_events(lake.events / "91.json", 91, lines)
    assert run(spark, lake.config, once=True).counts["duplicate"] == 0


def archiving(lake: OperatorLake, *, unique: bool) -> None:
    """Keep the archive, with ids, and take duplicates out if asked."""
    lake.configure()
    text = lake.path.read_text().replace("[pipeline]", "[pipeline]\narchive = true")
    if not unique:
        text = text.replace('\nunique_for = "30 minutes"', "").replace(', unique_for = "40 minutes"', "")
    lake.path.write_text(text)


@pytest.mark.slow
@pytest.mark.parametrize("form", [FORMS["unique session"], FORMS["unique join"]])
def test_an_archive_tells_which_events_came_before_the_setting(
    spark: SparkSession, tmp_path: Path, form: type[OperatorLake]
) -> None:
    """The second batch is the first one again: with the archive it has as many duplicates as if the setting had been there."""
    lines, found = [line for line in events(0) if line != "{broken"], list[tuple[int, ...]]()
    for before in (True, False):
        lake = form(tmp_path / f"lake {before}", tmp_path / f"events {before}")
        for number, unique in enumerate((before, True, True)):
            archiving(lake, unique=unique)
            write_events(lake.events / f"{number}.json", number, lines)
            counts = run(spark, lake.config, once=True).counts
            found.append((number, counts["accepted"], counts["late"], counts.get("duplicate", 0)))
            shutil.rmtree(lake.stores)
        assert read_status(lake.config).reconciles
    _, *always, _, second, third = found
    assert always == [second, third]
    assert second[3] > second[1] + second[2]


@pytest.mark.slow
def test_quality_finds_identities_that_are_lost_or_taken_twice(spark: SparkSession, tmp_path: Path) -> None:
    lake: OperatorLake = FORMS["unique session"](tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run(spark, lake.config, once=True)

    def failed() -> set[str]:
        notes = run_quality(spark, lake.config, only=["events"], dry_run=True).notes
        return {name for name in ("ids_counted", "taken_once") if any(name in note for note in notes)}

    assert failed() == set()
    tables = Tables.of(spark, lake.config)
    table, damaging = tables[schemas.EVENT_IDS], {"copied": True, "maintenance": {"job": "test"}}
    first = table.read().orderBy("key", "event_time", "id_hash").limit(1)
    key, batch = (first.collect()[0][name] for name in ("key", "batch_id"))
    with tables.settings({USER_METADATA: user_metadata(damaging)}):
        first.coalesce(1).write.format("delta").mode("append").save(table.uri)
    assert failed() == {"ids_counted", "taken_once"}
    with tables.settings({USER_METADATA: user_metadata(damaging)}):
        spark.sql(f"delete from {table.sql_name()} where key = '{key}' and batch_id = {batch}")
    assert failed() == {"ids_counted"}
    compact(spark, lake.config)
    assert failed() == set(), "it may have been beyond retention"
