"""What removes, copies and makes anew a pipeline of windows: expire, forget, backup, restore and rebuild, by DuckDB over the tables."""

from pathlib import Path
from typing import Any

import duckdb
import pyarrow.compute as pc
import pytest
import tomli_w
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError
from sessionlake.jobs.backup import backup, restore
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.rebuild import rebuild
from sessionlake.observe.status import read_status
from sessionlake.operators.windows.table import SLICES, WINDOWS
from sessionlake.stream.run import run
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.window_support import (
    changes_of,
    folded,
    hopping_config,
    live,
    run_files,
    slices_of_a_batch_to_come,
    tables_of,
    window_config,
)
from tests.support import write_rows

Window = tuple[Any, ...]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    root = tmp_path_factory.mktemp("windows")
    config = window_config(root)
    run_files(spark, root, config, range(2))
    compact(spark, config)
    run_files(spark, root, config, range(2, 3))
    return config


@pytest.fixture(scope="module")
def hopped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    root = tmp_path_factory.mktemp("hopping")
    config = hopping_config(root)
    run_files(spark, root, config, range(2))
    compact(spark, config)
    run_files(spark, root, config, range(2, 3))
    return config


@pytest.fixture
def hopping(hopped: Config, tmp_path: Path) -> Config:
    return copy_pipeline(Path(hopped.directory), tmp_path / "hopping", hopping_config)


@pytest.fixture
def config(ran: Config, tmp_path: Path) -> Config:
    return copy_pipeline(Path(ran.directory), tmp_path / "copy", window_config)


def is_closed(config: Config, window: Window) -> bool:
    watermark = read_status(config).watermark_us
    assert watermark is not None
    return bool(window[1] + 10 <= watermark - 20)


def outcomes(config: Config) -> list[tuple[Any, ...]]:
    rows = stored(config, "correction_outcomes")
    with duckdb.connect() as db:
        db.register("rows", rows)
        return db.execute("select job, outcome, count(*) from rows group by all order by all").fetchall()


def stored(config: Config, name: str) -> Any:
    return DeltaTable(f"{config.pipeline.warehouse}/{name}").to_pyarrow_table()


def test_expire_removes_closed_windows_and_no_others(spark: SparkSession, config: Config) -> None:
    before = folded(config)
    going = [window for window in before if window[2] > 1 and is_closed(config, window)]
    assert 0 < len(going) < len([window for window in before if window[2] > 1])
    dry = expire(spark, config, where="window.event_count > 1", dry_run=True)
    report = expire(spark, config, where="window.event_count > 1")
    assert dry.counts["expired"] == report.counts["expired"] == len(going)
    run(spark, config, once=True)
    kept = [window for window in before if window not in going]
    assert folded(config) == kept == live(tables_of(spark, config))
    assert outcomes(config) == [("expire", "applied", len(going))]
    deletes = changes_of(config).filter(pc.field("op") == "delete")
    assert deletes.num_rows == len(going)
    assert deletes["event_count"].to_pylist() == [0] * len(going)
    assert read_status(config).reconciles
    again = expire(spark, config, where="event_count > 1")
    assert (again.counts["matched"], again.counts["expired"]) == (0, 0)
    # Folded, and a restored store: nothing of them comes back.
    compact(spark, config)
    moved = config.model_copy(
        update={"pipeline": config.pipeline.model_copy(update={"store": config.directory + "/x"})}
    )
    key, start, _, _ = going[0]
    write_rows(Path(config.directory), "late.json", [{"key": key, "time_us": start, "v": 1}])
    run(spark, moved, once=True)
    assert live(tables_of(spark, config)) == kept


def test_a_tombstone_is_stale_where_its_window_is_open_gone_or_changes(spark: SparkSession, config: Config) -> None:
    windows = folded(config)
    closed = next(window for window in windows if is_closed(config, window))
    opened = next(window for window in windows if not is_closed(config, window))
    tables = tables_of(spark, config)
    named = [("1", closed, 0), ("2", closed, 0), ("3", closed, 1), ("4", opened, 0)]
    text = ", ".join(
        f"('t{name}', 'tombstone', '{w[0]}', timestamp_micros({w[1]}), {w[3] + more}L, 'test', 'r')"
        for name, w, more in named
    )
    columns = "correction_id, kind, key, start_time, revision, job, run_id"
    spark.sql(f"insert into {tables['corrections'].sql_name()} ({columns}) values {text}")
    run(spark, config, once=True)
    assert folded(config) == [window for window in windows if window != closed]
    assert outcomes(config) == [("test", "applied", 1), ("test", "stale", 3)]
    letters = tables["dead_letters"].read().where("kind = 'tombstone' and reason = 'stale'")
    assert sorted(row.source for row in letters.collect()) == ["t2", "t3", "t4"]
    assert read_status(config).reconciles


def test_expire_deletes_the_rows_of_hopping_windows_and_leaves_their_slices(
    spark: SparkSession, hopping: Config
) -> None:
    before, slices = folded(hopping), folded(hopping, SLICES)
    going = [window for window in before if is_closed(hopping, window)]
    report = expire(spark, hopping, where="true")
    run(spark, hopping, once=True)
    assert report.counts["expired"] == len(going) > 0
    assert folded(hopping) == [window for window in before if window not in going]
    assert folded(hopping, SLICES) == slices
    assert read_status(hopping).reconciles


def test_tombstones_of_windows_do_not_go_to_a_topic(spark: SparkSession, config: Config) -> None:
    with pytest.raises(ConfigError, match=r"^--to-topic: tombstones in a topic are of sessions or of a table's rows"):
        expire(spark, config, ttl="1 s", to_topic=True)


def test_forget_leaves_nothing_of_a_key_in_any_table_or_store(spark: SparkSession, hopping: Config) -> None:
    config, tables = hopping, tables_of(spark, hopping)
    others = [window for window in folded(config) if window[0] != "a"]
    slices = [row for row in folded(config, SLICES) if row[0] != "a"]
    report = forget(spark, config, ["a"])
    assert not report.failed, report.notes
    assert report.counts["found"] == 0
    assert report.counts["tombstones"] > 0
    assert report.counts["stores"] > 0
    assert live(tables) == others == folded(config)
    assert live(tables.seen_by(SLICES)) == slices == folded(config, SLICES)
    holders = {
        "window_changelog": "window_key",
        "windows": "window_key",
        "slice_changelog": "slice_key",
        "slices": "slice_key",
        "late_events": "key",
        "corrections": "key",
        "correction_outcomes": "key",
    }
    for name, column in holders.items():
        assert "a" not in stored(config, name)[column].to_pylist()
    # The stream goes on from stores that are restored without it.
    run_files(spark, Path(config.directory), config, range(3, 4))
    assert read_status(config).reconciles
    assert {row[:2] for row in others} <= {row[:2] for row in live(tables)}


def test_a_backup_has_all_changelogs_as_of_one_batch_and_is_gone_on_from(
    spark: SparkSession, hopping: Config, tmp_path: Path
) -> None:
    config = hopping
    slices, expected = folded(config, SLICES), folded(config)
    slices_of_a_batch_to_come(tables_of(spark, config))
    backup(spark, config, str(tmp_path / "backup"))
    place = tmp_path / "restored"
    place.mkdir()
    restored = hopping_config(place)
    restore(spark, restored, str(tmp_path / "backup"))
    assert folded(restored) == expected == live(tables_of(spark, restored))
    assert folded(restored, SLICES) == slices != folded(config, SLICES)
    assert read_status(restored).reconciles


def test_rebuild_makes_the_windows_of_all_events(spark: SparkSession, ran: Config, tmp_path: Path) -> None:
    events = Path(ran.directory) / "events"
    sections = ran.model_dump(include={"pipeline", "source", "event", "aggregates"}, exclude_none=True)
    sections["source"]["path"] = str(events)
    path = tmp_path / "test.toml"
    window = ran.section.model_dump(exclude={"aggregates"}, exclude_none=True)
    path.write_text(tomli_w.dumps({**sections, "emit": window.pop("emit"), "window": {**window, "size": "30 us"}}))
    summary, _ = rebuild(spark, path, str(tmp_path / "new"))
    assert summary.counts["accepted"] == 120
    new = ran.model_copy(update={"pipeline": ran.pipeline.model_copy(update={"warehouse": str(tmp_path / "new")})})
    with duckdb.connect() as db:
        db.execute(f"create table e as select * from read_json('{events}/*.json')")
        start = "(floor((time_us - 3) / 30) * 30 + 3)::bigint"
        expected = db.execute(f"select key, {start}, count(*), 0 from e group by all order by all").fetchall()
    assert folded(new, WINDOWS) == expected
