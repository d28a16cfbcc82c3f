"""Each batch of groups beside a model that keeps all events: any batches, signs, shards, tombstones, and lost stores."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import build_aggregates
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.local.rows import Row
from sessionlake.local.source import local_config
from sessionlake.operators.groups.mapper import signed
from sessionlake.sources.decoding.rows import Rows
from sessionlake.testing import Harness
from tests.oracle.groups import Event, Groups, TakenBackError
from tests.support import examples

FILES = {"kind": "files", "path": "events", "format": "json"}
EVENT = {"key": "key", "time": "time_us", "time_unit": "us"}
SCHEMA = {"key": "string", "time_us": "long", "v": "long", "tag": "string"}
ADDED = {"total": "sum(v)", "last": "last(tag)", "different": "count_distinct(v)"}
SIGNED = {"total": "sum(v)", "known": "count(v)", "most": "max(v)", "different": "count_distinct(v)", "mean": "avg(v)"}


def config(aggregates: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"source": FILES, "event": EVENT, "group": {}, "aggregates": aggregates, **more}


class SignedSource(SourceSection):
    """Files whose rows may be taken back."""

    @property
    def takes_back(self) -> bool:
        """Yes."""
        return True


class SignedHarness(Harness):
    """Groups with SIGNED, of rows with a `sign`: -1 of one that is taken back."""

    def __init__(self, shards: int = 1) -> None:
        given = local_config(config(SIGNED))
        super().__init__(given.model_copy(update={"source": SignedSource(**FILES)}), schema=SCHEMA, shards=shards)

    def _chunks(self, name: str, rows: Sequence[Row], taken_back: int) -> list[Rows]:
        found = []
        for chunk, partition in zip(
            super()._chunks(name, rows, taken_back), sorted({row["partition"] for row in rows}), strict=True
        ):
            signs = [row["sign"] for row in rows if row["partition"] == partition]
            found.append(replace(chunk, sign=np.array(signs, np.int64)))
        return found


def total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def values_added(events: list[Event]) -> tuple[Any, ...]:
    """Return the values of ADDED; an event is (time, v, tag)."""
    numbers = [v for _, v, _ in events]
    last = max((time, tag) for time, _, tag in events)[1]
    return total(numbers), last, len({v for v in numbers if v is not None})


def values_signed(events: list[Event]) -> tuple[Any, ...]:
    """Return the values of SIGNED; an event is (v,)."""
    known = [v for (v,) in events if v is not None]
    mean = sum(known) / len(known) if known else None
    return total(known), len(known), max(known, default=None), len(set(known)), mean


def kept_signed(events: list[Event]) -> Counter[int | None]:
    """Return which values there are, and how many of each: what max(v) keeps to take rows back."""
    return Counter(v for (v,) in events if v is not None)


def told(changes: list[dict[str, Any]], names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return changes as the model has them."""
    rows = [
        (row["op"], row["group_key"], row["event_count"], *([row[n] for n in names] if row["op"] == "upsert" else []))
        for row in changes
    ]
    return sorted(rows, key=lambda row: row[1])


keys = st.sampled_from(["a", "b", "c", "long" * 20])
events = st.tuples(keys, st.tuples(st.integers(-5, 5), st.none() | st.integers(-3, 3), st.sampled_from("xyz")))
tombstones = st.tuples(keys, st.integers(0, 6))
batches = st.lists(st.tuples(st.lists(events, max_size=8), st.lists(tombstones, max_size=2), st.booleans()), max_size=7)


@examples(100)
@given(batches, st.integers(1, 3))
def test_every_batch_gives_the_changes_of_a_model_that_keeps_all_events(drawn: list[Any], shards: int) -> None:
    model = Groups(values_added)
    with Harness(config(ADDED), schema=SCHEMA, shards=shards) as harness:
        for number, (some, removed, lost) in enumerate(drawn):
            # Each partition is another part of the batch, as of another map task.
            rows = [
                {"key": key, "time_us": time, "v": v, "tag": tag, "partition": at % 3}
                for at, (key, (time, v, tag)) in enumerate(some)
            ]
            named = [{"kind": "tombstone", "key": key, "revision": revision} for key, revision in dict(removed).items()]
            out = harness.process(rows, number, corrections=named)
            expected, stale = model.batch([(key, event, 1) for key, event in some], [*dict(removed).items()])
            assert told(out.changes, list(ADDED)) == expected
            assert (len(out.stale), out.counts.get("applied", 0)) == (stale, len(named) - stale)
            assert {row["changed_at"] for row in out.changes} <= {number}
            assert {row["revision"] for row in out.changes} <= {number}
            assert out.counts.get("accepted", 0) == len(some)
            assert out.late == out.dead == []
            if lost:
                harness.lose_stores()


@examples(150)
@given(st.data(), st.integers(1, 3))
def test_rows_that_are_taken_back_leave_what_never_came(data: st.DataObject, shards: int) -> None:
    model = Groups(values_signed, kept_signed)
    with SignedHarness(shards) as harness:
        for _ in range(data.draw(st.integers(1, 6))):
            there = [(key, event, -1) for key, some in model.events.items() for event in some.elements()]
            back = data.draw(st.lists(st.sampled_from(there), unique_by=id, max_size=6)) if there else []
            fresh = data.draw(st.lists(st.tuples(keys, events.map(lambda row: (row[1][1],)), st.just(1)), max_size=6))
            gone = data.draw(st.integers(0, len(fresh)))
            # Some are taken back in the batch that brings them.
            given = data.draw(st.permutations([*back, *fresh, *((k, e, -1) for k, e, _ in fresh[:gone])]))
            rows = [
                {"key": key, "time_us": 0, "v": v, "sign": sign, "partition": at % 3}
                for at, (key, (v,), sign) in enumerate(given)
            ]
            out = harness.process(rows)
            expected, _ = model.batch(given)
            assert told(out.changes, list(SIGNED)) == expected
            assert (out.counts.get("accepted", 0), out.counts.get("taken_back", 0)) == (len(given), len(back) + gone)
            if data.draw(st.booleans()):
                harness.lose_stores()
        final = {row["group_key"]: row for row in harness._tables.rows.values()}
    found = [(key, row["event_count"], *(row[name] for name in SIGNED)) for key, row in sorted(final.items())]
    assert found == model.rows()


def test_an_event_that_is_exchanged_for_an_equal_one_writes_nothing() -> None:
    with SignedHarness() as harness:
        one = {"key": "a", "time_us": 0, "v": 3, "sign": 1, "partition": 0}
        harness.process([one])
        out = harness.process([{**one, "sign": -1}, {**one, "time_us": 9}])
        assert (out.changes, out.counts["upserts"], out.counts["deletes"]) == ([], 0, 0)
        assert harness.process([{**one, "key": "new"}, {**one, "key": "new", "sign": -1}]).changes == []


def test_more_rows_taken_back_than_given_is_one_line_and_changes_nothing() -> None:
    with SignedHarness() as harness:
        row = {"key": "a", "time_us": 0, "v": 3, "partition": 0}
        model = Groups(values_signed, kept_signed)
        model.batch([("a", (3,), 1)])
        harness.process([{**row, "sign": 1}])
        with pytest.raises(TakenBackError):
            model.batch([("a", (3,), -1), ("a", (3,), -1)])
        with pytest.raises(PipelineStateError) as raised:
            harness.process([{**row, "sign": -1}, {**row, "sign": -1}])
        assert str(raised.value).startswith("group: rows of a key are taken back that were not given")
        assert "sessionlake rebuild" in str(raised.value)
        assert "\n" not in str(raised.value)
        assert harness.process([{**row, "sign": 1}]).changes[0]["event_count"] == 2


@pytest.mark.parametrize(
    "text",
    [
        *("count(v)", "count_if(v > 2)", "bool_or(v > 2)", "sum(v)", "sum(d)", "avg(d)", "variance(v)", "min(v)"),
        *("count_distinct(v)", "percentile(v, 0.5)", "histogram(v)", "first(v)", "last(v)", "collect_set(v, 3)"),
    ],
)
def test_a_value_taken_back_that_was_not_given_is_one_line_and_changes_nothing(text: str) -> None:
    """There are rows enough, but not with this value."""
    feed = {"kind": "change_feed", "path": "customers"}
    sections = {"source": feed, "event": EVENT, "group": {}, "aggregates": {"found": text}}
    row = {"key": "a", "time_us": 0, "v": 1, "d": 1.0}
    other = {"key": "a", "time_us": 0, "v": 3, "d": 3.0}
    nothing: dict[str, Any] = {**row, "v": None, "d": None}
    given = nothing if text.startswith(("count(", "sum", "avg", "variance")) else row
    with Harness(sections, schema={**SCHEMA, "d": "double"}) as harness:
        harness.process([given, given])
        with pytest.raises(PipelineStateError, match=r"^group: rows of a key are taken back that were not given, "):
            harness.process([], taken_back=[other])
        (kept,) = harness.process([row], taken_back=[given, given]).changes
        assert kept["event_count"] == 1


def test_an_aggregate_by_time_needs_the_time_of_the_row() -> None:
    """By the clock of its batch a row would be taken back at another time than it was added at, and stay."""
    feed = {"source": {"kind": "change_feed", "path": "customers"}, "event": {"key": "key"}, "group": {}}
    harness = Harness({**feed, "aggregates": {"known": "count(v)", "all": "collect(v, 3)"}}, schema=SCHEMA)
    with pytest.raises(
        ConfigError, match=r"^aggregates\.all: 'collect\(v, 3\)' goes by event time, .*; write event\.time"
    ):
        harness.process([{"key": "a", "v": 1}])


def test_an_aggregate_that_can_not_subtract_is_named() -> None:
    last = build_aggregates({"last": "last(tag)"}, {"tag": pa.string()})
    with pytest.raises(ConfigError, match=r"^aggregates\.last: can't take rows back"):
        signed(last, [pa.array([1, 2]), pa.array([b"x", b"y"])], np.array([1, -1]))


def test_an_event_of_any_age_is_taken_in() -> None:
    with Harness(config({"n": "count()"})) as harness:
        harness.process([{"key": "a", "time_us": 10**15}], 10**15)
        out = harness.process([{"key": "a", "time_us": -(10**16)}], 10**15)
        assert [(row["n"], row["event_count"]) for row in out.changes] == [(2, 2)]
        assert harness.watermark_us == 10**15


def test_events_without_a_time_have_the_clock_of_their_batch() -> None:
    given = config({"last": "last(v)"}, event={"key": "key"})
    with Harness(given) as harness:
        harness.process([{"key": "a", "v": 1}], 20)
        out = harness.process([{"key": "a", "v": 2}], 30)
        assert [(row["last"], row["changed_at"]) for row in out.changes] == [(2, 30)]


def test_a_group_without_aggregates_counts() -> None:
    with Harness({"source": FILES, "event": EVENT, "group": {}}) as harness:
        out = harness.process([{"key": "b", "time_us": 0}, {"key": "a", "time_us": 0}, {"key": "b", "time_us": 0}])
        assert {row["group_key"]: row["event_count"] for row in out.changes} == {"a": 1, "b": 2}
        harness.lose_stores()
        assert harness.process([{"key": "a", "time_us": 0}]).changes[0]["event_count"] == 2
