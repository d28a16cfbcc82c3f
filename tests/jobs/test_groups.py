"""The jobs on pipelines of groups, against DuckDB over the events."""

import json
import shutil
from pathlib import Path

import pytest
import tomli_w
from pyspark.sql import SparkSession

from sessionlake.config.joint_keys import joint_text
from sessionlake.config.load import Config
from sessionlake.errors import NotNeededError
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
from sessionlake.operators.groups.table import GROUPS
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import latest_changes
from tests.jobs.backup.copies import copy_pipeline
from tests.operators.groups.group_support import (
    PER_FILE,
    ROWS,
    group_config,
    group_sections,
    grouped,
    live,
    run_files,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Four batches, the first two of them folded."""
    root = tmp_path_factory.mktemp("groups")
    config = group_config(root)
    run_files(spark, root, config, range(2))
    compact(spark, config)
    run_files(spark, root, config, range(2, 4))
    return config


@pytest.fixture
def config(ran: Config, tmp_path: Path) -> Config:
    """The same pipeline, to be changed."""
    return copy_pipeline(Path(ran.directory), tmp_path / "copy", group_config)


def test_status_reconciles_until_an_event_is_lost(spark: SparkSession, config: Config) -> None:
    assert read_status(config).reconciles
    tables = Tables.of(spark, config)
    with tables.settings({USER_METADATA: user_metadata({"copied": True, "maintenance": {"job": "test"}})}):
        spark.sql(
            f"update {tables[GROUPS.changelog.changes].sql_name()} set event_count = event_count + 1 where batch_id = 3"
        )
    assert not read_status(config).reconciles


PLANTED = {
    "key_present": "'' as group_key",
    "time_present": "cast(null as timestamp) as changed_at",
    "known_op": "'emit' as op",
    "events_by_op": "0l as event_count",
    "revision_is_batch": "9l as revision",
    "batch_committed": "99l as batch_id",
    "state_by_op": "cast(null as binary) as state",
}
"""Defects of rows of the changelog, by the checks that find them."""
IN_SNAPSHOT = {
    "key_present": "'' as group_key",
    "time_present": "cast(null as timestamp) as changed_at",
    "has_events": "0l as event_count",
    "state_present": "cast(null as binary) as state",
    "revision_committed": "-1l as revision",
}
"""The same of rows of the snapshot, of keys that the changelog has not."""


def test_checks_hold_and_each_fails_on_its_defect(spark: SparkSession, config: Config) -> None:
    lax = config.quality.model_copy(update={"max_dead_rate": 1, "max_null_key_rate": 1})
    config = config.model_copy(update={"quality": lax})
    report = run_quality(spark, config)
    assert not report.failed, report.notes
    assert report.counts["checks"] == report.counts["passed"] > 25
    tables = Tables.of(spark, config)
    with tables.settings({USER_METADATA: user_metadata({"copied": True, "maintenance": {"job": "test"}})}):
        for of, defects in ((GROUPS.changelog.changes, PLANTED), (GROUPS.changelog.snapshot, IN_SNAPSHOT)):
            row = tables[of].read(tables[of].latest_version()).limit(1)
            for number, defect in enumerate(["revision", *defects.values()]):
                column = defect.rpartition(" as ")[2]
                own = (
                    {} if of == GROUPS.changelog.changes or not number else {"group_key": f"'new{number}' as group_key"}
                )
                own |= {} if column == "revision" and not number else {column: defect}
                kept = [name for name in row.columns if name not in own]
                planted = row.selectExpr(*kept, *own.values()).select(*row.columns)
                planted.write.format("delta").mode("append").save(tables[of].uri)
    broken = run_quality(spark, config)
    names = {note.split(": ")[1] for note in broken.notes if note.startswith("critical")}
    expected = {f"group_changelog.{check}" for check in (*PLANTED, "one_change_a_batch")}
    expected |= {f"groups.{check}" for check in (*IN_SNAPSHOT, "one_row_a_key", "events_add_up")}
    assert expected <= names


def test_publish_sends_rows(spark: SparkSession, ran: Config) -> None:
    tables = Tables.of(spark, ran)
    sent = to_records(
        latest_changes(tables[GROUPS.changelog.changes].read(), GROUPS.changelog), GROUPS.changelog
    ).collect()
    records = [json.loads(row["value"]) for row in sent]
    assert {(row["group_key"], row["event_count"]) for row in records} <= {
        (joint_text(row[:2]), row[2]) for row in live(ran)
    }
    assert not {"state", "group_part"} & set(records[0])


def test_expire_deletes_rows_by_age_and_by_sql(spark: SparkSession, config: Config) -> None:
    rows = live(config)
    few = [row for row in rows if row[3] < 15]
    assert 0 < len(few) < len(rows)
    asked = {"where": "group.total < 15 and `group`.event_count > 0", "max_share": 1.0}
    assert expire(spark, config, **asked, dry_run=True).counts["matched"] == len(few)
    report = expire(spark, config, **asked, run_id="r")
    assert report.counts["expired"] == len(few)
    run(spark, config, once=True)
    assert live(config) == [row for row in rows if row not in few]
    # An event of its key begins the group anew, also from stores that are restored.
    shutil.rmtree(config.driver_store_dir)
    run_files(spark, Path(config.directory), config, range(4, 5))
    fresh = grouped(ROWS[4 * PER_FILE : 5 * PER_FILE])
    gone = {row[:2] for row in few}
    assert [row for row in live(config) if row[:2] in gone] == [row for row in fresh if row[:2] in gone] != []
    assert read_status(config).reconciles


def test_forget_removes_a_key_from_everywhere(spark: SparkSession, config: Config) -> None:
    compact(spark, config)
    key = joint_text(live(config)[0][:2])
    report = forget(spark, config, [key])
    assert not report.failed, report.notes
    assert (report.counts["found"], report.counts["tombstones"]) == (0, 1)
    assert live(config) == grouped(ROWS[: 4 * PER_FILE])[1:]


def test_rebuild_gives_the_same_groups(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    rebuilt, path = tmp_path / "new", Path(config.directory, "config.toml")
    path.write_text(tomli_w.dumps(group_sections()))
    rebuild(spark, path, str(rebuilt))
    moved = config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"warehouse": str(rebuilt)})})
    assert live(moved) == live(config)


def test_backup_restored_goes_on(spark: SparkSession, config: Config, tmp_path: Path) -> None:
    before = live(config)
    backup(spark, config, str(tmp_path / "saved"))
    places = {"warehouse": str(tmp_path / "restored"), "store": str(tmp_path / "stores")}
    moved = config.model_copy(update={"pipeline": config.pipeline.model_copy(update=places)})
    restore(spark, moved, str(tmp_path / "saved"))
    assert live(moved) == before
    run_files(spark, Path(config.directory), moved, range(4, 6))
    assert live(moved) == grouped(ROWS)


def test_jobs_that_groups_have_no_need_of_refuse_in_one_line(spark: SparkSession, ran: Config) -> None:
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
