"""`where` and computed columns through Spark and Delta: tables, jobs, restores, and warehouses of an earlier release."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows, read_batches
from tests.stream.old_warehouses import FIXTURES, unpacked
from tests.support import make_config, write_rows

COLUMNS = {"price": "cast(price as double)", "cost": "price * n", "key": "concat('k', key)"}
COUNTED = ("input", "accepted", "late", "dead", "filtered")


def config_of(root: Path, where: str, **columns: str) -> Config:
    return make_config(
        root,
        event={"key": "key", "time": "time_us", "time_unit": "us", "where": where, "columns": {**COLUMNS, **columns}},
        session={"gap": "10 us", "grace": "20 us", "retention": "200 us"},
        aggregates={"total": "sum(cost)", "dearest": "max(price)"},
    )


def event(key: str | None, time: int, type_: Any, price: Any = "2", n: Any = 3) -> dict[str, Any]:
    return {"key": key, "time_us": time, "type": type_, "price": price, "n": n}


def stored(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    rows = merged_rows(Tables.of(spark, config))
    return sorted(
        (row["session_key"], int(row["session_start"].timestamp() * 1e6 + 0.5), row["event_count"], row["total"])
        for row in rows.collect()
    )


def counts(spark: SparkSession, config: Config) -> dict[str, int]:
    status = read_status(config)
    assert status.reconciles
    sums = {name: sum(row[name] for row in read_batches(Tables.of(spark, config)).collect()) for name in COUNTED}
    assert {name: status.counts[name] for name in COUNTED} == sums
    return sums


@pytest.mark.slow
def test_shaped_events_from_file_to_job(spark: SparkSession, tmp_path: Path) -> None:
    config = config_of(tmp_path, "type = 'buy'")
    first = [
        event("a", 0, "buy"),
        event("a", 5, "buy", "1.5", 2),
        event("z", 150, "buy", "free"),
        event(None, 9, "view"),
    ]
    bad = [event("a", 6, 7), event("a", 6, "view", "1", "x"), event(None, 7, "buy")]
    # The first file alone gives the columns their types.
    write_rows(tmp_path, "0.json", first)
    run(spark, config, once=True)
    later = [event("a", 12, "buy", "1", 1), event("a", 13, "view"), event("b", 900, "view")]
    write_rows(tmp_path, "1.json", [*bad, *later])
    shutil.rmtree(tmp_path / "store")
    run(spark, config, once=True)
    assert counts(spark, config) == {"input": 10, "accepted": 3, "late": 1, "dead": 2, "filtered": 4}
    assert stored(spark, config) == [("ka", 0, 2, 9.0), ("kz", 150, 1, None)]

    # A late event was let in, and its columns are computed again, whatever `where` is by now.
    config = config_of(tmp_path, "type = 'buy' and n > 1")
    reprocess_late(spark, config)
    write_rows(tmp_path, "2.json", [event("c", 160, "buy", "1", 1), event("c", 161, "buy", "1", 2)])
    run(spark, config, once=True)
    everything = [("ka", 0, 3, 10.0), ("kc", 161, 1, 2.0), ("kz", 150, 1, None)]
    assert stored(spark, config) == everything
    # Each batch is read again by its own text.
    assert backfill(spark, config, from_us=0, to_us=1000, dry_run=True).counts["corrections"] == 0
    assert run_quality(spark, config, only=["events", "sessions"]).counts["failed_critical"] == 0
    assert redeem(spark, config_of(tmp_path, "n > 100"), reasons=["null key"]).counts["filtered"] == 1
    with pytest.raises(PipelineStateError, match=r"event\.columns\.cost: changed from"):
        run(spark, config_of(tmp_path, "true", cost="price"), once=True)


@pytest.mark.slow
def test_a_warehouse_of_an_earlier_release_takes_where(spark: SparkSession, tmp_path: Path) -> None:
    archive = next(FIXTURES.glob("jobs-*.tar.gz"))
    plain = unpacked(tmp_path, archive)
    assert "filtered" not in Tables.of(spark, plain)[schemas.BATCHES].read().columns
    assert read_status(plain).counts["filtered"] == 0
    config = make_config(
        tmp_path,
        pipeline={"archive": True},
        event={"key": "key", "time": "time_us", "time_unit": "us", "id": plain.event.id, "where": "v > 0"},
    )
    write_rows(tmp_path, "late.json", [{"key": "n", "time_us": 10**6, "v": v, "id": f"i{v}"} for v in (0, 1)])
    run(spark, config, once=True)
    status = read_status(config)
    assert status.counts["filtered"] == 1
    assert status.reconciles
    assert "filtered" in Tables.of(spark, config)[schemas.BATCHES].read().columns
