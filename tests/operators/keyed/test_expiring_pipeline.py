"""Tables whose rows expire, end to end on Spark: by the harness, whatever becomes of stores, and after kill -9."""

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import duckdb
import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import Config, parse_config
from sessionlake.engine import coordinator
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.compact import compact
from sessionlake.observe.status import read_status
from sessionlake.quality.run import run_quality
from sessionlake.serve.views import live_view
from sessionlake.stream import clock as stream_clock
from sessionlake.stream import run as stream_run
from sessionlake.stream.run import run
from sessionlake.testing.tables import TableHarness
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import assert_stands_sigkill, run_once
from tests.operators.keyed.table_support import EVENTS, changes, live, run_files, table_sections
from tests.operators_table import TableLake
from tests.support import write_rows
from tests.warehouse.replaced_support import assert_replaced

NAMES = ("op", "table_key", "event_time", "v", "s", "revision", "event_id", "cause")


def expiring(root: Path, ttl: dict[str, Any], **settings: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    return parse_config({**table_sections(**settings), "ttl": ttl}, root)


def logged(config: Config) -> list[list[Any]]:
    """Return the changelog, times in microseconds."""
    table = changes(config)
    at = table.schema.get_field_index("event_time")
    rows = table.set_column(at, "event_time", table["event_time"].cast("int64")).to_pylist()
    return sorted(([row[name] for name in NAMES] for row in rows), key=repr)


@pytest.mark.slow
def test_every_batch_takes_away_what_the_harness_does_with_stores_lost(spark: SparkSession, tmp_path: Path) -> None:
    ttl = {"pattern": "index", "ttl": "12 minutes", "clock": "stream"}
    config = expiring(tmp_path, ttl, retention="20 minutes")
    keeping = config.pipeline.model_copy(update={"keep_replaced": True})
    config = config.model_copy(update={"pipeline": keeping})
    columns = {"v": "long", "s": "string"}
    with TableHarness(columns, retention="20 minutes", event_id="id", ttl=ttl, shards=2) as harness:
        for number in range(4):
            run_files(spark, tmp_path, config, range(number, number + 1))
            some = EVENTS[number * 10 : number * 10 + 10]
            harness.process([*({**row, "deleted": row["op"] == "d"} for row in some), {"key": None}])
            if number == 2:
                shutil.rmtree(config.driver_store_dir)
        wanted = [[row[name] for name in NAMES] for row in harness.changelog()]
        assert logged(config) == sorted(wanted, key=repr)
        assert "ttl" in {row[-1] for row in wanted}
        kept = [(key, row["event_time"], row["v"], row["s"]) for key, row in harness.rows().items()]
        assert live(spark, config) == kept != []
        assert sorted(row[0] for row in sessionlake.read_table(config).fetchall()) == list(harness.rows())
        last = Tables.of(spark, config)["table_changelog"].last_commit()
        assert last is not None
        assert last.metadata["state"] == harness.state
    kept = Tables.of(spark, config)[schemas.REPLACED_ROWS].read().toArrow().to_pylist()
    log = Tables.of(spark, config)["table_changelog"].read().toArrow().to_pylist()
    assert assert_replaced(kept, log, ["table_key"], ["table_key", "event_time", "v", "s", "revision", "event_id"])


def test_run_once_ends_with_a_cleanup_by_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    config = expiring(tmp_path, {"pattern": "scan", "where": "v = 1", "every": "1 us"})
    write_rows(tmp_path, "0.json", [{**EVENTS[1], "key": "a", "v": 1}, {**EVENTS[1], "key": "b", "v": 2}])
    run(spark, config, once=True)
    assert [(row[0], row[1], row[-1]) for row in logged(config)] == [("delete", "a", "ttl"), ("upsert", "b", "update")]
    suite = json.loads((Path(__file__).parents[3] / "expectations/table_changelog.json").read_text())["expectations"]
    known = next(e["kwargs"]["condition"] for e in suite if e["kwargs"].get("name") == "known_cause")
    with duckdb.connect() as database:
        database.register("found", changes(config))
        assert database.execute(f"select cause, {known} as is_known from found order by cause").fetchall() == [
            ("ttl", True),
            ("update", True),
        ]
    last = Tables.of(spark, config)["table_changelog"].last_commit()
    assert last is not None
    # Batch 1 is of no input.
    assert (last.metadata["batch_id"], last.metadata["counts"]["scanned"]) == (1, 1)
    status = read_status(config)
    assert (status.rows, status.reconciles) == (1, True)


@pytest.mark.slow
def test_a_clock_that_is_ten_years_ahead_removes_no_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ttl = {"pattern": "index", "ttl": "365 days"}
    config, shift, real = expiring(tmp_path, ttl), 0, time.time_ns
    clock_of = stream_run.clock_of
    monkeypatch.setattr(stream_run, "clock_of", lambda offsets: clock_of(offsets) + shift)
    for module in (coordinator, stream_clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(time_ns=lambda: real() + shift * 1000))
    now = real() // 1000
    write_rows(tmp_path, "0.json", [{**EVENTS[1], "key": f"k{n}", "time_us": now - 1000} for n in range(120)])
    run(spark, config, once=True, trust_clock=True)
    shift = 3650 * 24 * 3_600_000_000
    run(spark, config, once=True, trust_clock=True)
    (said,) = (record.getMessage() for record in caplog.records if "more than a day ahead" in record.getMessage())
    assert said.startswith("sessionlake: ttl: the clock, 20")
    assert len(live(spark, config)) == 120
    shift += 60_000_000
    with pytest.raises(PipelineStateError, match=r"120 rows, 100% of all, more than 20%.*--allow-expiry"):
        run(spark, config, once=True, trust_clock=True)
    before = Tables.of(spark, config)["table_changelog"].last_commit()
    run(spark, config, once=True, trust_clock=True, allow_expiry=True)
    after = Tables.of(spark, config)["table_changelog"].last_commit()
    assert before is not None
    assert after is not None
    assert (before.metadata["settings"]["live"].get("allow_expiry"), live(spark, config)) == (None, [])
    assert after.metadata["settings"]["live"]["allow_expiry"] is True


@pytest.mark.slow
@pytest.mark.parametrize(
    "ttl",
    [
        {"pattern": "segments", "ttl": "1 hour"},
        {"pattern": "lru", "max_entries": 100, "changelog_retention": "1 hour"},
    ],
    ids=["segments", "lru"],
)
def test_rows_are_hidden_wherever_a_table_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ttl: dict[str, Any]
) -> None:
    config = expiring(tmp_path, ttl)
    hour, shift = 3_600_000_000, 0
    clock_of = stream_run.clock_of
    monkeypatch.setattr(stream_run, "clock_of", lambda offsets: clock_of(offsets) + shift)

    def wrote(time: int, *keys: str) -> list[str]:
        """Run a batch of some keys' events; return the keys that are read in each way, which must be the same."""
        write_rows(tmp_path, f"{shift}.json", [{**EVENTS[1], "key": key, "time_us": time} for key in keys])
        run(spark, config, once=True)
        found = sorted(row[0] for row in live(spark, config))
        assert sorted(row[0] for row in sessionlake.read_table(config).fetchall()) == found
        return found

    assert wrote(5, "a", "b") == ["a", "b"]
    shift = hour // 2
    assert wrote(6, "b", "c") == ["a", "b", "c"]
    shift = hour + hour // 4
    assert wrote(7, "d") == ["b", "c", "d"]
    compact(spark, config)
    stored = {row["table_key"] for row in changes(config, "table_snapshot").to_pylist()}
    assert "a" not in stored
    shutil.rmtree(config.driver_store_dir)
    shift = 2 * hour
    # Older than what `a` had, and yet a new row: nothing remembers what has expired.
    assert wrote(4, "a") == ["a", "d"]
    lax = config.quality.model_copy(update={"max_dead_rate": 1, "max_null_key_rate": 1})
    report = run_quality(spark, config.model_copy(update={"quality": lax}))
    assert not report.failed, report.notes
    assert "written_at" in live_view(config, "trino", "delta.test")
    assert read_status(config).evicted == (0 if ttl["pattern"] == "lru" else None)


class ExpiringLake(TableLake):
    """A table whose rows expire with the watermark."""

    template: ClassVar[str] = f'{TableLake.template}\n[ttl]\npattern = "index"\nttl = "15 minutes"\nclock = "stream"\n'


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_changelog", "after_changelog"])
def test_sigkill_of_the_driver_in_a_batch_that_takes_rows_away(spark: SparkSession, tmp_path: Path, point: str) -> None:
    half = ExpiringLake(tmp_path / "half", tmp_path / "events")
    half.write_files(range(2))
    run_once(spark, half)
    half.correct(spark)
    half.write_files(range(2, 4))
    expected = half.copy(tmp_path / "expected")
    run_once(spark, expected)
    assert expected.commits()[2]["counts"]["deleted_by_ttl"] > 0, "the batch that is killed takes nothing away"
    assert_stands_sigkill(spark, half.copy(tmp_path / "killed"), expected, point)
