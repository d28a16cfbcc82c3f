"""The examples of docs/rules.md, rules 170 to 176, and the checks of the section [ttl]."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from sessionlake.config.load import parse_config
from sessionlake.engine.operator import BatchContext
from sessionlake.errors import ConfigError
from sessionlake.jobs.expire.tombstone_sender import tombstone_rate
from sessionlake.operators.keyed.expiry.ordered_ids import FORMATS, KeyFormat
from sessionlake.operators.keyed.expiry.segments import Segments
from sessionlake.operators.keyed.expiry.ttl import Ttl
from sessionlake.operators.keyed.ttl_section import ttl_section
from sessionlake.operators.shared.cleanups.names import LIVE_ROWS
from sessionlake.testing.tables import TableHarness
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN
from tests.operators.keyed.table_support import table_sections
from tests.operators.keyed.updates import HOUR, MINUTE, SECOND, TICK, update


@pytest.mark.parametrize("pattern", ["scan", "index", "time_boxed"])
@pytest.mark.parametrize(("clock", "left"), [(12 * HOUR - 1, ["a"]), (12 * HOUR, [])])
def test_row_expires_exactly_ttl_after_its_time(pattern: str, clock: int, left: list[str]) -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": pattern, "ttl": "1 hour"}) as table:
        table.process([update("a", 11 * HOUR)], clock_us=11 * HOUR)
        table.process(TICK, clock_us=clock)
        assert list(table.rows()) == left


@pytest.mark.parametrize("pattern", ["scan", "index", "time_boxed"])
def test_row_that_is_renewed_by_the_batch_of_its_cleanup_stays(pattern: str) -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": pattern, "ttl": "1 hour"}) as table:
        table.process([update("a", 11 * HOUR), update("b", 11 * HOUR)], clock_us=11 * HOUR)
        output = table.process([update("a", 11 * HOUR + 1, 1), *TICK], clock_us=12 * HOUR)
        assert sorted((row["op"], row["table_key"]) for row in output.changes) == [("delete", "b"), ("upsert", "a")]
        assert output.counts["deleted_by_ttl"] == 1
        assert list(table.rows()) == ["a"]


def test_time_ordered_key_that_is_updated_in_the_batch_of_its_cleanup_goes_once() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "time_ordered_keys", "ttl": "1 hour"}) as table:
        table.process([update(ID, 0)], clock_us=MADE)
        output = table.process([update(ID, 1), *TICK], clock_us=MADE + HOUR)
        assert [(row["op"], row["cause"]) for row in output.changes] == [("delete", "ttl")]
        assert not table.rows()


def test_cleanups_are_aligned_and_a_clock_that_is_set_back_holds_none_up() -> None:
    noon, due = 12 * HOUR, []
    with TableHarness({"v": "long"}, ttl={"pattern": "scan", "ttl": "1 day"}) as table:
        for clock in (noon + 50 * SECOND, noon + 59 * SECOND, noon + MINUTE, noon - 2 * MINUTE):
            output = table.process(TICK, clock_us=clock)
            due.append("max_cleaned_wall_us" in output.counts)
    assert due == [True, False, True, True]


@pytest.mark.parametrize("pattern", ["scan", "index"])
def test_cleanup_of_more_rows_than_it_may_take_goes_on_in_the_next_batches(pattern: str) -> None:
    ttl, left = {"pattern": pattern, "ttl": "1 hour", "max_per_cleanup": 2}, []
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        table.process([update(key, 11 * HOUR) for key in "abcde"], clock_us=11 * HOUR)
        for later in range(4):
            table.process(TICK, clock_us=12 * HOUR + later)
            left.append("".join(table.rows()))
        output = table.process(TICK, clock_us=12 * HOUR + 5)
    assert left == ["cde", "e", "", ""]
    assert "max_cleaned_wall_us" not in output.counts


def test_rows_are_looked_at_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.operators.keyed.expiry.pattern.CHUNK", 2)
    with TableHarness({"v": "long"}, ttl={"pattern": "scan", "ttl": "1 hour"}) as table:
        table.process([update(key, 11 * HOUR + (key in "bd")) for key in "abcde"], clock_us=11 * HOUR)
        output = table.process(TICK, clock_us=12 * HOUR)
        assert (list(table.rows()), output.counts["scanned"]) == (["b", "d"], 5)


def test_expired_row_is_outranked_by_newer_updates_only() -> None:
    ttl = {"pattern": "index", "ttl": "1 hour"}
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        table.process([update("a", 11 * HOUR)], clock_us=11 * HOUR)
        output = table.process(TICK, clock_us=12 * HOUR)
        assert [(row["op"], row["cause"]) for row in output.changes] == [("delete", "ttl")]
        again = table.process([update("a", 11 * HOUR)], clock_us=12 * HOUR + 1)
        assert again.counts["superseded"] == 1
        table.process([update("a", 11 * HOUR + 30 * MINUTE)], clock_us=12 * HOUR + 1)
        assert list(table.rows()) == ["a"]


def test_lru_looks_beyond_the_rows_that_the_batch_changes() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "lru", "max_entries": 2}) as table:
        for number, keys in enumerate(["a", "b", "ac"]):
            table.process([update(key, 11 * HOUR + number) for key in keys], clock_us=11 * HOUR)
        assert list(table.rows()) == ["a", "c"]


def test_restored_store_lacks_what_has_expired() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "index", "ttl": "1 hour"}) as table:
        table.process([update("a", 11 * HOUR), update("b", 12 * HOUR)], clock_us=11 * HOUR)
        table.process(TICK, clock_us=12 * HOUR)
        before = table.index()
        table.lose_stores()
        assert list(table.rows()) == ["b"]
        assert table.index() == before


def test_time_boxed_goes_on_where_it_stopped_and_begins_anew() -> None:
    rows = [update(f"{n:04d}", 0 if n in (10, 2400) else HOUR, n) for n in range(2500)]
    ttl = {"pattern": "time_boxed", "ttl": "1 hour", "max_duration": "1 us"}
    left = []
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        table.process(rows, clock_us=0)
        for n in range(4):
            output = table.process(TICK, clock_us=HOUR + n * MINUTE)
            left.append((output.counts["scanned"], output.counts["deleted_by_ttl"]))
            assert table.state["cleanup_round_us"] == (0, MINUTE, 2 * MINUTE, 0)[n]
            assert table.state["expiry_lag_us"] == (0 if n in (1, 3) else n * MINUTE)
    # What was removed in the first thousand is not there in the second round.
    assert left == [(1000, 1), (1000, 0), (500, 1), (1000, 0)]


@pytest.mark.parametrize(("since", "left"), [("write", ["a"]), ("insert", [])])
def test_update_renews_since_write_and_not_since_insert(since: str, left: list[str]) -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "index", "ttl": "1 hour", "since": since}) as table:
        table.process([update("a", 99 * HOUR)], clock_us=12 * HOUR)
        table.process([update("a", 99 * HOUR, 1)], clock_us=12 * HOUR + 30 * MINUTE)
        table.lose_stores()
        table.process(TICK, clock_us=13 * HOUR - 1)
        assert list(table.rows()) == ["a"]
        table.process(TICK, clock_us=13 * HOUR)
        assert list(table.rows()) == left


@pytest.mark.parametrize(("clock", "left"), [(13 * HOUR - 1, ["a", "b"]), (13 * HOUR, ["b"])])
def test_row_of_a_segment_is_absent_exactly_ttl_after_it_was_written(clock: int, left: list[str]) -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "segments", "ttl": "1 hour"}) as table:
        table.process([update("a", 99 * HOUR)], clock_us=12 * HOUR)
        table.process([update("b", 99 * HOUR)], clock_us=12 * HOUR + 1)
        table.process(TICK, clock_us=clock)
        assert list(table.rows()) == left
        # What is hidden stays so by a clock that was set back, and an older update makes a new row.
        output = table.process([update("a", 1)], clock_us=12 * HOUR)
        assert len(output.changes) == int("a" not in left)
        assert output.counts.get("superseded", 0) == int("a" in left)


def test_segments_of_rows_that_are_over_are_dropped_also_of_shards_without_rows() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "segments", "ttl": "1 hour"}) as table:
        for minute in range(0, 200, 5):
            table.process([update(str(minute), 1)] if minute < 100 else TICK, clock_us=minute * MINUTE)
            shown = [str(m) for m in range(max(0, minute - 55), min(minute, 95) + 1, 5)]
            assert sorted(table.rows(), key=int) == shown
            # A segment is 20 minutes; the last ones are dropped by the commit after the cleanup that found them.
            assert len(table.stored_keys()) <= len(shown) + 5
        assert table.stored_keys() == []


def test_idle_table_of_segments_asks_for_batches_until_all_rows_are_over() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "segments", "ttl": "1 hour"}) as table:
        table.process([update("a", 1)], clock_us=12 * HOUR)
        assert table.due_us() == 12 * HOUR + MINUTE
        table.process(TICK, clock_us=13 * HOUR)
        assert table.due_us() is None


@pytest.mark.parametrize("pattern", ["scan", "time_boxed"])
def test_idle_table_asks_for_no_batch_once_all_rows_are_deleted(pattern: str) -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": pattern, "ttl": "1 hour"}) as table:
        table.process([update("a", 11 * HOUR), update("b", 11 * HOUR)], clock_us=11 * HOUR)
        assert table.due_us() == 11 * HOUR + MINUTE
        table.process(TICK, clock_us=12 * HOUR)
        assert (table.state[LIVE_ROWS], table.due_us()) == (0, None)


def test_segments_are_of_a_microsecond_at_least() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "segments", "ttl": "2 us"}) as table:
        table.process([update("a", 0)], clock_us=5)
        table.process(TICK, clock_us=6)
        assert list(table.rows()) == ["a"]
        table.process(TICK, clock_us=7)
        assert not table.rows()


@pytest.mark.parametrize(("ttl_us", "hidden_us"), [(HOUR, 13 * HOUR), (2 * HOUR, 12 * HOUR), (9 * HOUR, 12 * HOUR)])
def test_what_was_hidden_once_stays_so_where_rows_live_longer(ttl_us: int, hidden_us: int) -> None:
    context = BatchContext(1, "c", {HIDDEN_WRITTEN: 12 * HOUR}, 14 * HOUR)
    assert Ttl(Segments(ttl_us), since="write").hidden_us(context) == hidden_us


def test_rows_are_never_written_before_earlier_ones() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "index", "ttl": "1 hour", "since": "write"}) as table:
        table.process([update("a", 1)], clock_us=12 * HOUR)
        output = table.process([update("b", 1)], clock_us=11 * HOUR)
        assert [row["written_at"] for row in output.changes] == [12 * HOUR]


ID = "017eb31e-1440-7b69-9d82-5f0937f823c8"
MADE = 0x017EB31E1440 * 1000


@pytest.mark.parametrize(("clock", "left"), [(MADE + HOUR - 1, [ID]), (MADE + HOUR, [])])
def test_time_ordered_key_expires_exactly_ttl_after_it_was_made(clock: int, left: list[str]) -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "time_ordered_keys", "ttl": "1 hour"}) as table:
        table.process([update(ID, MADE + 99 * HOUR)], clock_us=0)
        output = table.process(TICK, clock_us=clock)
        assert list(table.rows()) == left
        assert output.counts["scanned"] == 1 - len(left)


@pytest.mark.parametrize(
    ("key_format", "good"),
    [("uuid7", ID), ("ulid", "01ARZ3NDEKTSV4RRFFQ69G5FAV"), ("ulid", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ")],
)
def test_keys_of_another_format_are_dead_letters(key_format: str, good: str) -> None:
    ttl = {"pattern": "time_ordered_keys", "ttl": "1 hour", "key_format": key_format}
    wrong = [
        ID.upper(),
        ID[:-1],
        f"{ID}\n",
        ID.replace("-7", "-4"),
        "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "01arz3ndektsv4rrffq69g5fav",
        "é",
    ]
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        output = table.process([update(key, 1) for key in (*wrong, good)])
        assert list(table.rows()) == [good]
        assert [row["key"] for row in output.dead] == wrong
        name = {"uuid7": "UUIDv7", "ulid": "ULID"}[key_format]
        assert {row["reason"] for row in output.dead} == {f"key is no {name}"}
        assert output.counts["dead"] == len(wrong)


@pytest.mark.parametrize("key_format", FORMATS)
def test_a_clock_beyond_48_bits_of_milliseconds_is_after_all_ids(key_format: KeyFormat) -> None:
    last, of = ((1 << 48) - 1) * 1000, FORMATS[key_format]
    found = of.first_at(last)
    assert found is not None
    assert len(found) == of.places[-1] + 1
    assert of.first_at(last + 1) is None


def test_lru_keeps_the_latest_changed() -> None:
    with TableHarness({"v": "long"}, ttl={"pattern": "lru", "max_entries": 2}) as table:
        table.process([update("a", 1), update("b", 2)])
        table.process([update("a", 3)])
        output = table.process([update("c", 1)])
        assert list(table.rows()) == ["a", "c"]
        assert {(row["table_key"], row["cause"]) for row in output.changes} == {("b", "lru"), ("c", "update")}


def test_lru_hides_what_is_beyond_its_retention_before_it_takes_others_away() -> None:
    ttl = {"pattern": "lru", "max_entries": 2, "changelog_retention": "5 minutes"}
    with TableHarness({"v": "long"}, ttl=ttl) as table:
        table.process([update("a", 1), update("b", 2)], clock_us=12 * HOUR)
        table.process(TICK, clock_us=12 * HOUR + 5 * MINUTE - 1)
        assert list(table.rows()) == ["a", "b"]
        output = table.process([update("c", 0)], clock_us=12 * HOUR + 5 * MINUTE)
        assert [(row["op"], row["table_key"]) for row in output.changes] == [("upsert", "c")]
        assert (list(table.rows()), table.stored_keys(), len(table.index())) == (["c"], ["b", "c"], 2)
        # Nothing remembers a, and b was not evicted.
        output = table.process([update("a", 0), update("d", 0)], clock_us=12 * HOUR + 5 * MINUTE)
        assert (list(table.rows()), table.state["evicted_rows"]) == (["a", "d"], 1)


@pytest.mark.parametrize(
    ("ttl", "told"),
    [
        (
            {"pattern": "segments", "ttl": "1 day", "changelog_retention": "2 days"},
            "ttl.changelog_retention: is not used with pattern = 'segments'; remove it, or write one of 'lru'",
        ),
        (
            {"pattern": "lru", "max_entries": 2, "changelog_retention": "0 s"},
            "ttl.changelog_retention: '0 s' must be longer",
        ),
        (
            {"pattern": "lru", "max_entries": 2, "changelog_retention": "5 minutes", "topic_tombstones": True},
            "ttl.changelog_retention: removes rows without logging deletes",
        ),
        ({"pattern": "scan"}, "ttl: none is there; write exactly one of ttl, expires_at, where"),
        ({"pattern": "index", "where": "v = 1", "ttl": "1 day"}, "ttl.where: is not used with pattern = 'index'"),
        ({"pattern": "scan", "where": "v = 1", "ttl": "1 day"}, "ttl: ttl and where are there"),
        (
            {"pattern": "scan", "ttl": "1 day", "max_entries": 3},
            "ttl.max_entries: is not used with pattern = 'scan'; remove it, or write one of 'lru'",
        ),
        ({"pattern": "time_ordered_keys", "where": "v = 1"}, "ttl.ttl: is missing"),
        ({"pattern": "time_ordered_keys", "ttl": "1 day", "key_format": "uuid4"}, "ttl.key_format"),
        (
            {"pattern": "scan", "ttl": "1 day", "key_format": "ulid"},
            "ttl.key_format: is not used with pattern = 'scan'",
        ),
        (
            {"pattern": "segments", "ttl": "1 day", "since": "insert"},
            "ttl.since: 'insert' can't be used with segments",
        ),
        ({"pattern": "segments", "ttl": "1 day", "clock": "wall"}, "ttl.clock: is not used with pattern = 'segments'"),
        ({"pattern": "segments", "ttl": "0 s"}, "ttl.ttl: '0 s' must be longer than zero"),
        ({"pattern": "segments", "ttl": "1 day", "where": "v = 1"}, "ttl.where: is not used with pattern = 'segments'"),
        ({"pattern": "lru"}, "ttl.max_entries: is missing"),
        ({"pattern": "scan", "ttl": "1 day", "every": "0 s"}, "ttl.every: '0 s' must be longer than zero"),
        (
            {"pattern": "scan", "where": "v = 1", "since": "write"},
            "ttl.since: 'write' goes with ttl.ttl; write 'event'",
        ),
        (
            {"pattern": "scan", "ttl": "1 day", "since": "insert", "clock": "stream"},
            "ttl.since: 'insert' is by the batches'",
        ),
        ({"pattern": "scan", "where": "v ="}, "ttl.where: 'v =' is no expression of Spark's SQL"),
        ({"pattern": "magic", "ttl": "1 day"}, "ttl.pattern"),
    ],
)
def test_section_is_refused_in_one_line(ttl: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^" + re.escape(told)) as refused:
        parse_config({**table_sections(), "ttl": ttl}, tmp_path)
    assert all(line.startswith("ttl") for line in str(refused.value).splitlines())


def layout(**ttl: Any) -> str:
    section = ttl_section(ttl)
    section.check()
    return section.build({"v": pa.int64()}, 1).pattern.layout


def test_stores_are_restored_where_an_index_or_the_segments_of_rows_are_others() -> None:
    """Under another layout every store is restored; without a pattern it is the empty text."""
    unindexed = [
        layout(pattern="scan", ttl="1 hour"),
        layout(pattern="scan", where="v = 1", every="2 hours"),
        layout(pattern="time_boxed", ttl="1 day", since="write"),
        layout(pattern="time_ordered_keys", ttl="1 hour"),
    ]
    assert set(unindexed) == {""}
    index = {"pattern": "index", "ttl": "1 hour"}
    assert layout(**index) == layout(**index, every="2 hours", max_per_cleanup=5)
    assert layout(pattern="lru", max_entries=5) == layout(pattern="lru", max_entries=9)
    others = [
        layout(**index),
        layout(**index, since="insert"),
        layout(pattern="index", expires_at="event_time + interval 1 hour * v"),
        layout(pattern="lru", max_entries=5),
        layout(pattern="segments", ttl="1 hour"),
        layout(pattern="segments", ttl="2 hours"),
    ]
    assert len({"", *others}) == 1 + len(others)


SECTIONS: dict[str, dict[str, Any]] = {
    "scan": {"pattern": "scan", "ttl": "2 hours"},
    "scan of SQL": {"pattern": "scan", "where": "event_time <= now() - interval 2 hours"},
    "index": {"pattern": "index", "ttl": "2 hours"},
    "index by insert": {"pattern": "index", "ttl": "2 hours", "since": "insert"},
    "time_boxed": {"pattern": "time_boxed", "ttl": "2 hours"},
    "time_ordered_keys": {"pattern": "time_ordered_keys", "ttl": "2 hours"},
    "lru": {"pattern": "lru", "max_entries": 1},
    "segments": {"pattern": "segments", "ttl": "2 hours"},
}


FAST = set(pairwise([None, *SECTIONS]))
"""Changes that are tried each time: from each section to the next one."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(before, after, marks=() if (before, after) in FAST else pytest.mark.slow)
        for before in (None, *SECTIONS)
        for after in SECTIONS
    ],
)
def test_rows_of_before_a_change_of_ttl_expire_by_the_new_one(before: str | None, after: str) -> None:
    """Of two rows, an hour and a half apart, the older one goes; the stores are restored where their layout is another."""
    old, young, at = "00000000-0000-7000-8000-000000000000", "00000052-65c0-7000-8000-000000000000", 90 * MINUTE
    first = None if before is None else {**SECTIONS[before], **({"max_entries": 2} if before == "lru" else {})}
    with TableHarness({"v": "long"}, ttl=first) as table, TableHarness({"v": "long"}, ttl=SECTIONS[after]) as other:
        table.process([update(old, 0)], clock_us=0)
        table.process([update(young, at)], clock_us=at)
        assert list(table.rows()) == [old, young]
        layouts = [layout(**SECTIONS[name]) if name else "" for name in (before, after)]
        table._operator = other._operator
        if layouts[0] != layouts[1]:
            table._shards.close()
            table._shards._cursors.clear()
            table.lose_stores()
        table.process(
            [update("00000070-f940-7000-8000-000000000000", 2 * HOUR)] if after == "lru" else TICK, clock_us=2 * HOUR
        )
        assert [key for key in table.rows() if key == old] == []
        assert after == "lru" or list(table.rows()) == [young]
        assert len(table.index()) == (1 if after in ("index", "index by insert", "lru") else 0)


@pytest.mark.parametrize(
    ("sent", "kept", "outcome"),
    [
        ({"offset": 7}, [], "applied"),
        ({"offset": 6}, ["a"], "stale"),
        ({"offset": 7, "partition": 1}, ["a"], "stale"),
        ({"offset": 7, "key": "gone"}, ["a"], "applied"),
    ],
)
@pytest.mark.parametrize("order", ["time", "offset"])
def test_tombstone_of_an_expiry_removes_the_row_of_its_record_only(
    order: Literal["time", "offset"], sent: dict[str, Any], kept: list[str], outcome: str
) -> None:
    expiry = {"kind": "expiry", "key": "a", **sent}
    with TableHarness({"v": "long"}, order=order, offsets=True) as table:
        table.process([{**update("a", HOUR), "offset": 7}])
        output = table.process([expiry, {**expiry, "correction_id": "sent again"}])
        assert list(table.rows()) == kept
        assert {name: output.counts[name] for name in ("applied", "stale")} == {"applied": 0, "stale": 0, outcome: 2}
        assert len(output.stale) == output.counts["stale"]


def test_update_that_comes_after_the_cleanup_survives_its_tombstone() -> None:
    ttl = {"pattern": "index", "ttl": "1 hour"}
    with TableHarness({"v": "long"}, offsets=True, ttl=ttl) as table:
        table.process([{**update("a", 11 * HOUR), "offset": 7}], clock_us=11 * HOUR)
        gone = table.process(TICK, clock_us=12 * HOUR).changes[0]
        assert (gone["op"], gone["cause"], gone["event_partition"], gone["event_offset"]) == ("delete", "ttl", 0, 7)
        table.process([{**update("a", 12 * HOUR), "offset": 8}], clock_us=12 * HOUR)
        output = table.process([{"kind": "expiry", "key": "a", "offset": 7}], clock_us=12 * HOUR)
        assert (output.counts["stale"], output.changes, list(table.rows())) == (1, [], ["a"])


TOPIC = {"kind": "kafka", "topic": "t", "bootstrap_servers": "a:1", "format": "json"}


@pytest.mark.parametrize(
    ("source", "key", "ttl", "told"),
    [
        (None, "key", {}, "ttl.topic_tombstones: goes with source.kind 'kafka', and this is 'files'"),
        (TOPIC, "_key", {}, "ttl.topic_tombstones: needs source.tombstones"),
        ({**TOPIC, "tombstones": True}, "key", {}, "ttl.topic_tombstones: are records with the rows' keys, and event.key is 'key'"),
        (
            {**TOPIC, "tombstones": True},
            "_key",
            {"pattern": "segments"},
            "ttl.topic_tombstones: is not used with pattern = 'segments'; remove it, or write one of 'scan', ",
        ),
        (None, "key", {"topic_tombstones": False, "max_tombstones_per_second": 5}, "ttl.max_tombstones_per_second: goes with"),
        ({**TOPIC, "tombstones": True}, "_key", {}, None),
    ],
)  # fmt: skip
def test_tombstones_to_a_topic_are_refused_in_one_line(
    tmp_path: Path, source: dict[str, Any] | None, key: str, ttl: dict[str, Any], told: str | None
) -> None:
    sections = table_sections(source=source)
    sections["event"] = {"key": key, "time": "time_us", "time_unit": "us"}
    sections["ttl"] = {"pattern": "index", "ttl": "1 day", "topic_tombstones": True, **ttl}
    if told is None:
        assert tombstone_rate(parse_config(sections, tmp_path)) is not None
        return
    with pytest.raises(ConfigError, match="^" + re.escape(told)) as refused:
        parse_config(sections, tmp_path)
    assert "\n" not in str(refused.value)


def test_expiry_that_reads_the_clock_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ttl.expires_at: .* reads the clock"):
        ttl_section({"pattern": "index", "expires_at": "now() + interval 1 hour"}).build({}, shards=1)


def test_ttl_of_sessions_is_refused(tmp_path: Path) -> None:
    sections = {name: value for name, value in table_sections().items() if name != "table"}
    with pytest.raises(ConfigError, match="ttl"):
        parse_config({**sections, "session": {"gap": "1 minute"}, "ttl": {"pattern": "scan", "ttl": "1 day"}}, tmp_path)
