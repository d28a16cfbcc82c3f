"""A gap that changes from an event time on, through Spark and Delta (docs/rules.md, rule 244)."""

import random
import shutil
import time
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any, cast

import duckdb
import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.cli.tables import register_tables
from sessionlake.config.load import Config, load_config, parse_config
from sessionlake.config.times import format_time
from sessionlake.errors import PipelineStateError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.publish import final
from sessionlake.jobs.publish.final import publish_final
from sessionlake.jobs.redeem.job import redeem
from sessionlake.operators.sessions.serving import SessionDecoder
from sessionlake.quality.run import run_quality
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import batches_after, last_batch
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.engine.crash_support import crash_at
from tests.support import make_config, write_config, write_rows

MINUTE = 60_000_000
CUT = 500
"""In minutes, as all times here."""
LONG, SHORT = "30 minutes", "10 minutes"
SESSION = {"gap": LONG, "grace": "40 minutes", "retention": "2000 minutes"}
BEFORE = [{"until": format_time(CUT * MINUTE), "gap": LONG}]
EARLIER: dict[str, Any] = {**SESSION, "gap": SHORT, "before": BEFORE}
ENDS = np.arange(0, 2 * CUT, 7) * MINUTE
NAMES = f"session_key, unix_micros(session_start) div {MINUTE}, unix_micros(session_end) div {MINUTE}, event_count"
# Of events that are in order by key and time: one begins a session at the cut, and after the gap of the one before.
ORACLE = """
with gaps as (select *, lag(t) over (partition by k order by t) as last_t from events),
begun as (select *, coalesce(t - last_t > if(last_t < $cut, 30, 10) or (last_t < $cut and t >= $cut), true) as begins from gaps),
numbered as (select *, sum(begins::int) over (partition by k order by t rows unbounded preceding) as number from begun)
select k, min(t), max(t), count(*) from numbered group by k, number order by 1, 2
"""


def event(key: str, minute: int) -> dict[str, Any]:
    return {"key": key, "time_us": minute * MINUTE, "v": 1}


def files(seed: int) -> list[list[dict[str, Any]]]:
    """Return batches of events, of which the first three lie before the cut; some of each come late."""
    rng = random.Random(seed)
    found = []
    for number in range(6):
        low = 160 * number
        times = [rng.randrange(max(low - 150, 0), low + 155) for _ in range(40)]
        found.append([event(rng.choice("abcd"), min(time, CUT - 3 if number < 3 else 10_000)) for time in times])
    return found


def expected(batches: list[list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    database = duckdb.connect()
    database.execute("create table events(k text, t bigint)")
    database.executemany(
        "insert into events values (?, ?)", [(e["key"], e["time_us"] // MINUTE) for b in batches for e in b]
    )
    return database.execute(ORACLE, {"cut": CUT}).fetchall()


def stored(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    merged_rows(Tables.of(spark, config)).createOrReplaceTempView("every_session")
    return [tuple(row) for row in spark.sql(f"select {NAMES} from every_session order by 1, 2").collect()]


@pytest.mark.slow
@pytest.mark.parametrize("emit", [None, {"early": "off", "full": "close"}])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_gap_from_a_time_on(spark: SparkSession, tmp_path: Path, emit: dict[str, str] | None, seed: int) -> None:
    sections: dict[str, Any] = {} if emit is None else {"emit": emit}
    before = make_config(tmp_path, session=SESSION, **sections)
    after = make_config(tmp_path, session=EARLIER, **sections)
    batches = files(seed)
    for number, rows in enumerate(batches):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, before if number < 3 else after, once=True)
        if number in (1, 4):
            shutil.rmtree(tmp_path / "store")
    reprocess_late(spark, after)
    run(spark, after, once=True)
    if emit is not None:
        run(spark, after, once=True, drain=True)
    everything = expected(batches)
    assert stored(spark, after) == everything
    assert sum(start < CUT for _, start, _, _ in everything) > 5
    assert backfill(spark, after, from_us=0, to_us=2000 * MINUTE, dry_run=True).counts["corrections"] == 0
    assert run_quality(spark, after, only=["sessions"]).counts["failed_critical"] == 0
    register_tables(spark, after)
    sql = f"select {NAMES} from sessions_live order by 1, 2"
    assert [tuple(row) for row in spark.sql(sql).collect()] == everything
    assert query_tables(after, sql.replace(" div ", " // "), 1000)[1] == everything


@pytest.mark.slow
@pytest.mark.parametrize("point", ["computed", "before_changelog"])
def test_a_batch_that_was_interrupted_before_the_change_is_run_to_its_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = make_config(tmp_path, session=SESSION, emit={"early": "off", "full": "close"})
    after = make_config(tmp_path, session=EARLIER, emit={"early": "off", "full": "close"})
    batches = files(3)
    for number, rows in enumerate(batches[:2]):
        write_rows(tmp_path, f"{number}.json", rows)
        run(spark, before, once=True)
    write_rows(tmp_path, "2.json", batches[2])
    with crash_at(monkeypatch, point), pytest.raises(Exception, match="CrashError"):
        run(spark, before, once=True)
    for number, rows in enumerate(batches[3:]):
        run(spark, after, once=True)
        write_rows(tmp_path, f"{number + 3}.json", rows)
    run(spark, after, once=True)
    reprocess_late(spark, after)
    run(spark, after, once=True, drain=True)
    assert stored(spark, after) == expected(batches)


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "until"), [("2 hours", "1 minute", 120), ("1 minute", "2 hours", 180)])
def test_sessions_that_wait_are_sent_though_the_gap_is_another(
    spark: SparkSession, tmp_path: Path, old: str, new: str, until: int
) -> None:
    """Stores list them by until when they are open, in buckets as wide as the gap asks for: the lists are made anew."""
    session = {"grace": "0 seconds", "retention": "20 hours"}
    emit = {"early": "off", "full": "close"}
    before = make_config(tmp_path, session={**session, "gap": old}, emit=emit)
    earlier = [{"until": format_time(until * MINUTE), "gap": old}]
    after = make_config(tmp_path, session={**session, "gap": new, "before": earlier}, emit=emit)
    write_rows(tmp_path, "0.json", [event(f"u{minute}", minute) for minute in range(60, 120)])
    run(spark, before, once=True)
    for minute in (until + 5, 480):
        write_rows(tmp_path, f"{minute}.json", [event("z", minute)])
        run(spark, after, once=True)
    run(spark, after, once=True, drain=True)
    sent = {key for key, *_ in stored(spark, after)}
    assert sent == {"z", *(f"u{minute}" for minute in range(60, 120))}


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [(10, 50), (50, 10)])
def test_readers_that_began_before_the_change_get_each_final_session_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int, new: int
) -> None:
    """A publisher, a pipeline behind, and views: all go on with the config of before."""
    session = {"grace": "0 seconds", "retention": "5000 minutes", "emit": "final"}
    before = load_config(write_config(tmp_path, session={**session, "gap": f"{old} minutes"}))
    earlier = [{"until": format_time(CUT * MINUTE), "gap": f"{old} minutes"}]
    after = make_config(tmp_path, session={**session, "gap": f"{new} minutes", "before": earlier})
    behind = parse_config(
        {
            "pipeline": {"name": "behind", "warehouse": "behind", "store": "stores"},
            "source": {"kind": "results", "of": "test.toml", "rows": "final"},
            "group": {},
            "aggregates": {"n": "count()"},
        },
        tmp_path,
    )
    tables, published, numbers = Tables.of(spark, before), Counter[str](), count()
    monkeypatch.setattr(final, "send", lambda rows, *_: published.update(row.session_key for row in rows.collect()))

    def step(config: Config, rows: list[dict[str, Any]]) -> None:
        write_rows(tmp_path, f"{next(numbers)}.json", rows)
        run(spark, config, once=True)
        run(spark, behind, once=True)
        publish_final(
            tables,
            before,
            cast("Any", None),
            str(tmp_path / "topic"),
            once=True,
            on_batch=lambda *_: None,
            meanwhile=lambda: None,
        )
        shown = "select session_key, count(*) from sessions_live group by 1"
        closed = dict(query_tables(after, shown, 1000)[1])
        assert published == dict(query_tables(before, shown, 1000)[1]) == closed
        assert dict(query_tables(behind, "select group_key, n from groups_live", 1000)[1]) == closed
        decoders = [SessionDecoder(one, last_batch(tables)) for one in (before, after)]
        open_until = [decoder._windows.open_until(ENDS).tolist() for decoder in decoders]
        assert open_until[0] == open_until[1]

    step(before, [*(event(f"k{minute}", minute) for minute in range(100, 300, 5)), event("z", 300)])
    step(after, [event("z", 480)])
    step(after, [*(event(f"l{minute}", minute) for minute in range(505, 600, 5)), event("y", 640)])
    step(after, [event("l595", 641)])
    step(after, [event("x", 2000)])
    keys = Counter(f"k{minute}" for minute in range(100, 300, 5)) + Counter(
        f"l{minute}" for minute in range(505, 600, 5)
    )
    assert published == keys + Counter(z=2, y=1, l595=int(new < 46))


@pytest.mark.slow
def test_events_that_were_redeemed_after_the_watermark_are_not_cut(spark: SparkSession, tmp_path: Path) -> None:
    now = time.time_ns() // 1000

    def config_of(skew: str, **session: Any) -> Config:
        more = {"gap": "30 minutes", "grace": "1 hour", "retention": "1 day", **session}
        return make_config(tmp_path, session=more, event={"max_future_skew": skew})

    def cut_at(minutes: int) -> Config:
        until = format_time(now + minutes * MINUTE)
        return config_of("4 hours", gap="5 minutes", before=[{"until": until, "gap": "30 minutes"}])

    mended = config_of("4 hours")
    rows = [{"key": "a", "time_us": now + minutes * MINUTE, "v": 1} for minutes in (0, 125, 135)]
    write_rows(tmp_path, "0.json", rows)
    run(spark, config_of("1 minute"), once=True)
    assert redeem(spark, mended, reasons=["too far in the future"]).counts["redeemed"] == 2
    told = r"^session\.before\.0\.until: .* is not after the latest event of a result, or of a correction that no batch has taken, "
    with pytest.raises(PipelineStateError, match=told):
        run(spark, cut_at(130), once=True)
    run(spark, mended, once=True)
    with pytest.raises(PipelineStateError, match=told):
        run(spark, cut_at(130), once=True)
    run(spark, cut_at(136), once=True)
    taken = last_batch(Tables.of(spark, mended)).settings.rebuild
    assert taken["session.gap"] == 5 * MINUTE, "though nothing came in"
    write_rows(tmp_path, "1.json", [{"key": "a", "time_us": now + 150 * MINUTE, "v": 1}])
    run(spark, cut_at(136), once=True)
    sessions = (
        merged_rows(Tables.of(spark, mended)).select(F.unix_micros("session_start") - now, "event_count").collect()
    )
    assert sorted((row[0] // MINUTE, row[1]) for row in sessions) == [(0, 1), (125, 2), (150, 1)]


@pytest.mark.slow
def test_a_gap_and_a_retention_that_grow_together(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted batch is run again under the retention of before, in which the new gap has no room."""
    before = make_config(tmp_path, session={"gap": SHORT, "grace": "0 seconds", "retention": SHORT})
    earlier = [{"until": format_time(CUT * MINUTE), "gap": SHORT}]
    session = {"gap": LONG, "grace": "0 seconds", "retention": LONG, "before": earlier}
    after = make_config(tmp_path, session=session)
    write_rows(tmp_path, "0.json", [event("a", 100)])
    run(spark, before, once=True)
    with pytest.raises(PipelineStateError, match=r"^session\.gap: is changed, and the stream has not taken it; "):
        backfill(spark, after, from_us=0, to_us=MINUTE)
    write_rows(tmp_path, "1.json", [event("a", 109), "{broken"])
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match="CrashError"):
        run(spark, before, once=True)
    run(spark, after, once=True)
    settings = [batch.settings.rebuild["session.gap"] // MINUTE for batch in batches_after(Tables.of(spark, after))]
    assert settings == [10, 10, 30], "its dead letter was committed, so it ran again as it was begun"
    assert backfill(spark, after, from_us=0, to_us=200 * MINUTE, dry_run=True).counts["corrections"] == 0
    write_rows(tmp_path, "2.json", [event("a", CUT), event("a", CUT + 30)])
    run(spark, after, once=True)
    assert stored(spark, after) == [("a", 100, 109, 2), ("a", CUT, CUT + 30, 2)]


def test_a_time_that_events_have_come_to_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    write_rows(tmp_path, "0.json", [event("a", CUT)])
    run(spark, make_config(tmp_path, session=SESSION), once=True)
    told = r"^session.before.0.until: 1970-01-01T08:20:00\+00:00 is not after the watermark, 1970-01-01T08:20:00"
    with pytest.raises(PipelineStateError, match=told):
        run(spark, make_config(tmp_path, session=EARLIER), once=True)
    told = r"^session.gap: changed .* restore the old value, keep it for earlier event times with \[\[session.before\]\], which `sessionlake plan CONFIG --write` adds, or rebuild"
    with pytest.raises(PipelineStateError, match=told):
        run(spark, make_config(tmp_path, session={**SESSION, "gap": SHORT}), once=True)
