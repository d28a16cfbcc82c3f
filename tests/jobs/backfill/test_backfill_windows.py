"""Windows computed again through real Spark and real Delta: what is wrong becomes what DuckDB says of all events, once."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import NotNeededError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.run import JobReport
from sessionlake.observe.status import read_status
from sessionlake.operators.windows.table import SLICES, WINDOWS
from sessionlake.stream.run import run
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.history import stamp, user_metadata
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.window_support import Row, hopping_config, run_files, tables_of, window_config

SIZE, OFFSET, RETENTION, EVER = 10, 3, 60, 10**6
POINTS = ["backfill_started", "backfill_before_corrections", "backfill_after_corrections"]
Make = Callable[..., Config]


def final_config(root: Path, **sections: Any) -> Config:
    return window_config(root, **{"emit": {"early": "off", "late": "close"}, **sections})


def sliding_config(root: Path, **sections: Any) -> Config:
    """Sliding windows of 10 us, with an archive."""
    kind = {"window": {"kind": "sliding", "offset": None}, "emit": {"early": "off", "late": "close"}}
    return window_config(root, **{**kind, "pipeline": {"archive": True}, **sections})


KINDS: dict[str, Make] = {
    "update": window_config, "final": final_config, "hopping": hopping_config, "sliding": sliding_config
}  # fmt: skip


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return of each kind a pipeline of three batches with late and partly late events, all folded into the snapshots."""
    made: dict[str, Path] = {}

    def build(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            config = KINDS[kind](made[kind])
            run_files(spark, made[kind], config, range(3))
            compact(spark, config)
        return made[kind]

    return build


@pytest.fixture
def copied(built: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Config]:
    return lambda kind: copy_pipeline(built(kind), tmp_path / kind, KINDS[kind])


def contents(spark: SparkSession, config: Config, first: int) -> list[Row]:
    """Return key, start, events and total of the windows that begin at or after a time, as they were sent last."""
    start = F.unix_micros("window_start")
    rows = merged_rows(tables_of(spark, config)).where(start >= first)
    return sorted(tuple(row) for row in rows.select("window_key", start, "event_count", "total").collect())


def of_all_events(root: Path, kind: str, first: int) -> list[Row]:
    """Return the same of all events, by DuckDB over the files."""
    advance = 5 if kind == "hopping" else 10
    starts = f"unnest(generate_series(t - ((t - {OFFSET}) % {advance}), t - {SIZE} + 1, -{advance}))"
    made = f"select distinct key, {starts} as s from e"
    if kind == "sliding":
        made = f"select key, t - {SIZE} as s from e union select key, t + 1 from e"
    end = f"s + {SIZE}" if kind == "sliding" else f"s + {SIZE} - 1"
    with duckdb.connect() as db:
        return db.execute(
            f"""
            with e as (select key, time_us as t, v from read_json_auto('{root}/events/*.json')), made as ({made})
            select key, s, count(*), sum(v)::bigint from made join e using (key)
            where s >= {first} and t between s and {end} group by all order by all
            """
        ).fetchall()


def oldest(config: Config) -> int:
    """Return where the first slice in retention begins."""
    watermark = read_status(config).watermark_us
    assert watermark is not None
    first = watermark - RETENTION
    return first if config.section.model_dump()["kind"] == "sliding" else first + (OFFSET - first) % 5


@contextmanager
def ours(spark: SparkSession) -> Iterator[None]:
    """Commit as we do: what others have changed is refused."""
    name = "spark.databricks.delta.commitInfo.userMetadata"
    spark.conf.set(name, user_metadata(stamp()))
    yield
    spark.conf.unset(name)


def damage(spark: SparkSession, config: Config, of: Changelog, low: int, high: int) -> None:
    """Change, remove and add rows of a snapshot that begin in a range; stores are lost, so that they have it, too."""
    path = tables_of(spark, config)[of.snapshot].uri
    named = f"{of.key} = '{{}}' and {of.start} = timestamp_micros({{}})"
    with ours(spark):
        first, second, third, *_ = in_range(spark, config, of, low, high)
        spark.sql(f"update delta.`{path}` set event_count = event_count + 5 where {named.format(*first)}")
        spark.sql(f"delete from delta.`{path}` where {named.format(*second)}")
        of_rows = {"state"} & set(spark.read.format("delta").load(path).columns)
        if of_rows:
            row = spark.read.format("delta").load(path).where(named.format(*third))
            row.withColumn(of.key, F.lit("bogus")).write.format("delta").mode("append").save(path)
    shutil.rmtree(config.driver_store_dir, ignore_errors=True)


def in_range(spark: SparkSession, config: Config, of: Changelog, low: int, high: int) -> list[Row]:
    start = F.unix_micros(of.start)
    rows: DataFrame = tables_of(spark, config)[of.snapshot].read().where((start >= low) & (start < high))
    return sorted(map(tuple, rows.select(of.key, start).collect()))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "points"), [("hopping", []), *((kind, POINTS) for kind in KINDS)])
def test_damage_is_repaired_whoever_kills_the_run(
    spark: SparkSession, copied: Callable[[str], Config], monkeypatch: pytest.MonkeyPatch, kind: str, points: list[str]
) -> None:
    config = copied(kind)
    root, first = Path(config.directory), oldest(config)
    closed = first + 30
    damage(spark, config, WINDOWS if kind == "update" else SLICES, first, EVER)
    if kind != "update":
        damage(spark, config, WINDOWS, first, closed)
    if kind == "sliding":
        # The archive has all.
        (root / "events").rename(root / "moved")
        (root / "events").mkdir()

    def attempt(**options: Any) -> JobReport:
        return backfill(spark, config, from_us=first, to_us=EVER, **options)

    tables = tables_of(spark, config)
    if points:
        dry = attempt(dry_run=True).counts
        assert tables["corrections"].read().isEmpty()
    for point in points:
        with crash_at(monkeypatch, point), pytest.raises(CrashError):
            attempt(run_id="r")
    done = attempt(run_id="r").counts
    assert done["corrections"] == tables["corrections"].read().count()
    if points:
        assert attempt(run_id="r").repeated
        # An attempt that finds its corrections written knows no other counts.
        assert {name: dry[name] for name in done} == done
    else:
        assert done["corrections"] == done["put"] + 1 > done["sent_again"] + 3
    if kind == "sliding":
        (root / "events").rmdir()
        (root / "moved").rename(root / "events")
    # The drain's own is one more.
    assert run(spark, config, once=True, drain=True).counts["applied"] == done["corrections"] + 1
    # A late event right before the range makes a window that begins with it.
    shown = first + (kind == "sliding")
    assert contents(spark, config, shown) == of_all_events(root, kind, shown)
    assert read_status(config).late.reconciles
    if points:
        after = backfill(spark, config, from_us=oldest(config), to_us=EVER, dry_run=True).counts
        assert (after["corrections"], after["unchanged"]) == (0, after["slices"])


@pytest.mark.slow
@pytest.mark.parametrize("first", ["reprocess", "backfill"])
def test_late_events_are_taken_in_once_by_whoever_comes_first(
    spark: SparkSession, copied: Callable[[str], Config], first: str
) -> None:
    config = copied("hopping")
    start = oldest(config)
    damage(spark, config, SLICES, start, EVER)

    def fill() -> dict[str, int]:
        return backfill(spark, config, from_us=start, to_us=EVER).counts

    if first == "reprocess":
        assert reprocess_late(spark, config).counts["restated"] > 0
        counts = fill()
        assert counts["late_included"] == 0 < counts["corrections"]
    else:
        assert fill()["late_included"] > 0
        counts = reprocess_late(spark, config).counts
        assert (counts["restated"], counts["corrections"]) == (0, 0)
    run(spark, config, once=True)
    assert backfill(spark, config, from_us=start, to_us=EVER, dry_run=True).counts["corrections"] == 0
    run(spark, config, once=True, drain=True)
    assert contents(spark, config, start) == of_all_events(Path(config.directory), "hopping", start)
    assert read_status(config).late.reconciles


@pytest.mark.slow
def test_what_was_removed_on_purpose_stays_away(spark: SparkSession, copied: Callable[[str], Config]) -> None:
    """A key that was erased though its files are there, and rows that expired, whose slices others still have."""
    config = copied("hopping")
    root, first = Path(config.directory), oldest(config)
    reprocess_late(spark, config)
    run(spark, config, once=True)
    forget(spark, config, ["a"], apply=True)
    expired = [row for row in contents(spark, config, first) if row[0] == "b" and row[1] < first + 25]
    where = f"window.window_key = 'b' and unix_micros(window.window_start) < {first + 25}"
    assert expire(spark, config, where=where).counts["expired"] >= len(expired) > 1
    run(spark, config, once=True)
    compact(spark, config)
    counts = backfill(spark, config, from_us=first, to_us=EVER, dry_run=True).counts
    assert (counts["corrections"], counts["unchanged"]) == (0, counts["slices"])
    assert counts["withheld"] > 0
    damage(spark, config, SLICES, first, EVER)
    assert backfill(spark, config, from_us=first, to_us=EVER).counts["corrections"] >= 3
    run(spark, config, once=True)
    run(spark, config, once=True, drain=True)
    right = [
        row
        for row in of_all_events(root, "hopping", first)
        if row[0] != "a" and row[:2] not in {r[:2] for r in expired}
    ]
    assert contents(spark, config, first) == right


@pytest.mark.slow
def test_what_lies_beyond_retention_is_left_but_where_a_window_is_one_slice(
    spark: SparkSession, copied: Callable[[str], Config]
) -> None:
    hopping, tumbling = copied("hopping"), copied("update")
    with pytest.raises(NotNeededError, match=r"^--to: 1970-01-01.* is beyond retention") as refused:
        backfill(spark, hopping, from_us=0, to_us=oldest(hopping), dry_run=True)
    assert "\n" not in str(refused.value)
    cut = backfill(spark, hopping, from_us=0, to_us=EVER, dry_run=True)
    whole = backfill(spark, hopping, from_us=oldest(hopping), to_us=EVER, dry_run=True)
    assert cut.counts == whole.counts
    assert cut.notes[:-1][0].startswith("--from: 1970-01-01")
    assert not whole.notes[:-1]
    root = Path(tumbling.directory)
    run_files(spark, root, tumbling, range(30, 31))
    cold = oldest(tumbling) - 100
    compact(spark, tumbling)
    damage(spark, tumbling, WINDOWS, -EVER, cold)
    counts = backfill(spark, tumbling, from_us=-EVER, to_us=EVER).counts
    assert run(spark, tumbling, once=True).counts["applied"] == counts["corrections"] >= 3
    # What was beyond retention when it came is a dead letter.
    dead = tables_of(spark, tumbling)["dead_letters"].read().select("key", F.unix_micros("event_time"))
    lost = {(row[0], row[1] - (row[1] - OFFSET) % SIZE) for row in dead.collect()}
    found = contents(spark, tumbling, -EVER)
    assert [row for row in found if row[:2] not in lost] == [
        row for row in of_all_events(root, "update", -EVER) if row[:2] not in lost
    ]
    assert not any(row[0] == "bogus" for row in found)
    # By number only its batch knew which of the older events it refused.
    by_number = window_config(root, window={"retention_count": 1000})
    run_files(spark, root, by_number, range(31, 32))
    assert "retention_count" in backfill(spark, by_number, from_us=-EVER, to_us=EVER, dry_run=True).notes[0]
