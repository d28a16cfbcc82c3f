"""The jobs on a join: what compact, quality, expire, reprocess-late, forget and rebuild make of its tables."""

import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config, load_config
from sessionlake.errors import NotNeededError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.rebuild import rebuild
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.datasets import datasets
from sessionlake.observe.status import read_status
from sessionlake.observe.tables import read_state, readings_of
from sessionlake.operators.views import read_live
from sessionlake.quality.run import run_quality
from sessionlake.serve.queries import query_tables
from sessionlake.serve.views import live_view
from sessionlake.stream.run import run
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from tests.operators.joins.join_support import accepted, join_config, join_raw, joined, messages, pairs_of, read, write

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLANTED = {
    "join_changelog": {
        "known_op": "'merge' as op",
        "key_present": "'' as join_key",
        "time_of_the_later": "timestamp_micros(1) as join_time",
        "near_enough": "timestamp_micros(unix_micros(left_time) + 100) as left_time",
        "positions_from_1": "0L as left_position",
        "revision_is_batch": "9L as revision",
        "batch_committed": "9L as batch_id",
        "id_of_key_and_positions": "7L as join_id",
    },
    "joins": {
        "key_present": "'' as join_key",
        "time_of_the_later": "timestamp_micros(1) as join_time",
        "near_enough": "timestamp_micros(unix_micros(left_time) + 100) as left_time",
        "id_of_key_and_positions": "7L as join_id",
        "date_of_time": "date'2000-01-01' as join_date",
        "revision_committed": "9L as revision",
    },
    "join_messages": {
        "known_side": "'middle' as side",
        "key_present": "'' as join_key",
        "positions_from_1": "0L as position",
    },
}
LAX = {"max_late_rate": 1.0, "max_dead_rate": 1.0}


def run_batches(spark: SparkSession, root: Path, config: Config, numbers: range) -> None:
    for number in numbers:
        for side, rows in messages(number).items():
            write(root, side, number, rows)
        run(spark, config, once=True)


def live(spark: SparkSession, config: Config) -> list[tuple[int, int]]:
    rows = read_live(spark, config).select("orders_v", "shipments_w").collect()
    return sorted((row[0], row[1]) for row in rows)


@pytest.mark.slow
def test_jobs_leave_the_pairs_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    config = join_config(tmp_path, quality=LAX, compact={"safety": "0 seconds"})
    run_batches(spark, tmp_path, config, range(3))
    found = joined(accepted([messages(number) for number in range(3)]))
    status = read_status(config)
    assert status.reconciles
    assert status.counts["upserts"] == len(found)
    assert readings_of(config, read_state(config)) is not None
    for number, method in ((3, "merge"), (4, "rewrite")):
        report = compact(spark, config, method=method)
        assert live(spark, config) == found
        run_batches(spark, tmp_path, config, range(number, number + 1))
        found = joined(accepted([messages(n) for n in range(number + 1)]))
        assert live(spark, config) == found
    assert report.counts["joins_upserted"] > 0
    folded = Tables.of(spark, config)["joins"].read().select("orders_v", "shipments_w").collect()
    assert 0 < len(folded) < len(found)
    assert {tuple(row) for row in folded} <= set(found)
    assert not run_quality(spark, config).failed
    (answer,) = query_tables(config, "select count(*) from joins_live", 1)[1]
    assert answer == (len(found),)
    assert "left_position" in live_view(config, "spark")


def plant(tables: Tables, table: str, defects: dict[str, str]) -> None:
    """Append a table's first or last row once for each defect, an expression with the column that it is of, and once as it is."""
    version = tables[table].latest_version()
    # Of the snapshot another row than of the changelog, whose newer one would stand in its place.
    end = F.desc if table == "joins" else F.asc
    places = ("position",) if table == "join_messages" else ("left_position", "right_position")
    row = tables[table].read(version).orderBy(*map(end, places)).limit(1).persist()
    with tables.settings({USER_METADATA: user_metadata({"copied": True, "maintenance": {"job": "test"}})}):
        for defect in (*defects.values(), "revision as revision"):
            column = defect.rpartition(" as ")[2]
            kept = [name for name in row.columns if name != column]
            planted = row.selectExpr(*kept, defect).select(*row.columns)
            planted.write.format("delta").mode("append").save(tables[table].uri)
    row.unpersist()


@pytest.mark.slow
def test_each_check_of_a_join_fails_on_its_defect(spark: SparkSession, tmp_path: Path) -> None:
    config = join_config(tmp_path, quality=LAX)
    run_batches(spark, tmp_path, config, range(1))
    compact(spark, config)
    report = run_quality(spark, config)
    assert not report.failed, report.notes
    tables = Tables.of(spark, config)
    for table, defects in PLANTED.items():
        plant(tables, table, defects)
    names = {note.split(": ")[1] for note in run_quality(spark, config).notes if note.startswith("critical")}
    assert {f"{table}.{check}" for table, defects in PLANTED.items() for check in defects} <= names
    assert {"join_changelog.one_change_a_batch", "joins.one_row_a_pair", "join_messages.stored_once"} <= names


@pytest.mark.slow
def test_late_messages_are_handed_in_again_and_pairs_and_keys_removed(spark: SparkSession, tmp_path: Path) -> None:
    config = join_config(tmp_path, quality=LAX)
    run_batches(spark, tmp_path, config, range(4))
    found = accepted([messages(number) for number in range(4)])
    before = read_status(config)
    assert before.late.waiting == before.late.events == len(found["late"]) > 0
    report = reprocess_late(spark, config)
    assert report.counts["restated"] > 0
    assert read_status(config).late.waiting == 0
    run(spark, config, once=True)
    again = Counter(row["side"] for row in read(config, "late_events").to_pylist())
    assert set(again) == {"left", "right"}
    buried = [row for row in read(config, "dead_letters").to_pylist() if row["reason"] == "expired"]
    gone = {(row["key"], row["event_time"]) for row in buried}
    # A message that is handed in again finds the partners that are in retention by then.
    assert before.watermark_us is not None
    oldest = before.watermark_us - 40
    kept = {side: [m for m in found[side] if m[1] >= oldest] for side in ("left", "right")}
    for row in read(config, "late_events").to_pylist():
        if (row["key"], row["event_time"]) not in gone:
            column = "orders_v" if row["side"] == "left" else "shipments_w"
            time_us = (row["event_time"] - EPOCH) // timedelta(microseconds=1)
            kept[row["side"]].append((row["key"], time_us, row["event"][column]))
    more = joined({**kept, "late": [], "dead": []})
    assert set(more) - set(joined(found))
    assert live(spark, config) == sorted({*joined(found), *more})
    assert read_status(config).reconciles

    tables = Tables.of(spark, config)
    rows = tables["join_changelog"].read()
    first = rows.where("join_key = 'b'").orderBy("left_position", "right_position").first()
    assert first is not None
    one = f"left_position = {first.left_position} and right_position = {first.right_position} and join_key = 'b'"
    count = len(live(spark, config))
    assert expire(spark, config, where=one).counts["expired"] == 1
    run(spark, config, once=True)
    assert len(live(spark, config)) == count - 1
    assert expire(spark, config, where=one).counts["expired"] == 0

    proof = forget(spark, config, ["a"], data_docs=tmp_path / "docs")
    assert not proof.failed, proof.notes
    for name in ("join_changelog", "joins", "join_messages"):
        assert tables[name].read().where("join_key = 'a'").count() == 0
    run_batches(spark, tmp_path, config, range(4, 5))
    pairs = read_live(spark, config).where(F.col("join_key") == "a").select("orders_v", "shipments_w").collect()
    assert all(row[0] >= 400 and row[1] >= 400 for row in pairs)
    assert not run_quality(spark, config).failed


@pytest.mark.slow
def test_a_restored_copy_goes_on_and_a_rebuild_reads_all(spark: SparkSession, tmp_path: Path) -> None:
    config = join_config(tmp_path)
    run_batches(spark, tmp_path, config, range(1))
    backup(spark, config, str(tmp_path / "copy"))
    shutil.rmtree(config.pipeline.warehouse)
    shutil.rmtree(config.driver_store_dir)
    restore(spark, config, str(tmp_path / "copy"))
    run_batches(spark, tmp_path, config, range(1, 2))
    assert live(spark, config) == joined(accepted([messages(number) for number in range(2)]))
    file = tmp_path / "join.toml"
    file.write_text(tomli_w.dumps(join_raw()))
    summary, _ = rebuild(spark, file, str(tmp_path / "new"))
    assert summary.batches == 1
    raw: dict[str, Any] = join_raw(pipeline={"warehouse": "new"})
    file.write_text(tomli_w.dumps(raw))
    batch = {side: [row for number in range(2) for row in messages(number)[side]] for side in ("left", "right")}
    assert pairs_of(load_config(file)) == joined(accepted([batch]))
    for job, options in ((backfill, {"from_us": 0, "to_us": 1}), (redeem, {"reasons": ["null key"]})):
        with pytest.raises(NotNeededError, match=r"^(backfill|redeem): a \[join\] depends on the order"):
            job(spark, config, **options)
    inputs, outputs = datasets(config, "run", {"input": 5, "accepted": 5})
    assert [Path(d.name).name for d in inputs] == ["left", "right", "corrections"]
    assert "join_messages" in [Path(d.name).name for d in outputs]
