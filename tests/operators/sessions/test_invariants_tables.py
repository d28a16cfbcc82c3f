"""What the changes fold to is the live store and the batch sessionization in SQL; the counts reconcile."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.operators.sessions.strategies import (
    ALL,
    BASIC,
    Config,
    Draft,
    Resolver,
    Row,
    batches,
    canonical_row,
    canonical_session,
    ci,
    configs,
    events,
    fold,
    in_each,
    live,
    names_of,
    opened,
    rows,
    slow,
)
from tests.oracle.sql import SqlOracle

SQL = SqlOracle()
Table = dict[tuple[str, int], Row]


class Ledger:
    """Follow which events and partials count, from what the sessionizer answered alone."""

    def __init__(self) -> None:
        self.partials: list[Row] = []
        self.removed: list[Row] = []

    def record(self, batch_id: int, resolved: list[Row], out: Any, before: Table, oldest: float) -> None:
        refused = [canonical_row(row) for row in [*out.late, *out.dead, *out.stale]]
        for row in resolved:
            if canonical_row(row) in refused:
                refused.remove(canonical_row(row))
            elif "kind" not in row:
                if row["time_us"] >= oldest:
                    self._add(batch_id, row["key"], {**row, "start_us": row["time_us"], "end_us": row["time_us"]})
            elif row["kind"] == "restate":
                self._add(batch_id, row["key"], row)
            else:
                for start, _ in names_of(row):
                    gone = before[row["key"], start]
                    named = {"key": row["key"], "start_us": start, "end_us": gone["end_us"], "batch_id": batch_id}
                    self.removed.append(named)
                for partial in row.get("put", ()):
                    self._add(batch_id, row["key"], partial)
        assert refused == []

    def removed_in(self, batch_id: int) -> set[tuple[str, int]]:
        return {(row["key"], row["start_us"]) for row in self.removed if row["batch_id"] == batch_id}

    def _add(self, batch_id: int, key: str, partial: Row) -> None:
        self.partials.append(
            {
                "key": key,
                "start_us": partial["start_us"],
                "end_us": partial["end_us"],
                "event_count": partial.get("event_count", 1),
                "v": partial["v"],
                "batch_id": batch_id,
                "own_gap": partial.get("g"),
            }
        )


def check_tables(config: Config, drafted: list[list[Draft]]) -> None:
    # The model only places the drafts: what is asserted does not use it.
    model, resolver, ledger = config.model(), Resolver(config), Ledger()
    table: Table = {}
    with opened(config) as harness:
        for batch_id, drafts in enumerate(drafted):
            resolved = resolver.batch(drafts, model)
            model.process(resolved)
            watermark = -math.inf if harness.watermark_us is None else harness.watermark_us
            before = dict(table)
            out = harness.process(resolved)
            fold(table, out.changes)
            ledger.record(batch_id, resolved, out, before, watermark - config.retention)
            check_changes(out, before, ledger.removed_in(batch_id), batch_id, config)
            check_counts(out, resolved)
            check_watermark(harness, watermark, ledger, batch_id)
        watermark = -math.inf if harness.watermark_us is None else harness.watermark_us
        warm = live(table, watermark - config.retention - config.gap, config)
        stored = [canonical_session(row, config.aggregates) for row in harness.sessions()]
    assert stored == [canonical_session(row, config.aggregates) for row in warm]

    final = [canonical_session(row, config.aggregates, revision=False) for row in live(table, -math.inf)]
    if config.max_gap is None and config.max_length is None:
        expected = SQL.sessionize_partials(ledger.partials, ledger.removed, config.gap)
        check_apart(final, config.gap)
    else:
        cells = config.max_length, config.offset
        expected = SQL.sessionize_limited(ledger.partials, ledger.removed, config.gap, *cells)
        check_uncut(final, config)
    assert final == [canonical_session({**row, "revision": 0}, BASIC) for row in expected]


def check_changes(out: Any, before: Table, removed: set[tuple[str, int]], batch_id: int, config: Config) -> None:
    """At most one change for each (key, start), each a real one, at this batch's revision.

    A removed session may be formed again by other events and look as before; test_rules_corrections has the rule.
    """
    kept = [change for change in out.changes if change["op"] != "emit"]
    names = [(change["key"], change["start_us"]) for change in kept]
    assert len(names) == len(set(names))
    assert all(change["revision"] == batch_id for change in out.changes)
    for change, name in zip(kept, names, strict=True):
        if change["op"] == "delete":
            assert name in before
        elif name in before and name not in removed:
            old = canonical_session(before[name], config.aggregates, revision=False)
            assert old != canonical_session(change, config.aggregates, revision=False)


def check_counts(out: Any, resolved: list[Row]) -> None:
    counts = out.counts
    assert counts["input"] == sum("kind" not in row for row in resolved)
    assert counts["input"] == sum(counts[name] for name in ("accepted", "late", "dead", "dropped", "emitted"))
    assert counts["corrections"] == sum("kind" in row for row in resolved)
    assert counts["corrections"] == sum(counts[name] for name in ("applied", "stale", "expired", "malformed"))
    assert counts["late"] == len(out.late)
    assert counts["stale"] == len(out.stale)
    assert counts["dead"] + counts["expired"] + counts["malformed"] == len(out.dead)
    assert counts["emitted"] == sum(change["op"] == "emit" for change in out.changes)


def check_watermark(harness: Any, before: float, ledger: Ledger, batch_id: int) -> None:
    # A partial put or restated at one time looks like an event in the ledger, so this is a bound and not an equation.
    starts = [row["start_us"] for row in ledger.partials if row["batch_id"] == batch_id]
    after = -math.inf if harness.watermark_us is None else harness.watermark_us
    assert before <= after <= max([before, *starts])


def check_apart(final: list[tuple[Any, ...]], gap: int) -> None:
    for one, other in itertools.pairwise(final):
        assert one[0] != other[0] or other[1] - one[2] > gap


def check_uncut(final: list[tuple[Any, ...]], config: Config) -> None:
    """No session crosses a cut."""
    if config.max_length is not None:
        for _, start, end, *_ in final:
            assert (start - config.offset) // config.max_length == (end - config.offset) // config.max_length


def check_events_in_sql(config: Config, drafted: list[list[Draft]]) -> None:
    """With events alone, every aggregate equals the window functions' over the accepted events."""
    model, resolver = config.model(), Resolver(config)
    table: Table = {}
    accepted: list[Row] = []
    with opened(config) as harness:
        for drafts in drafted:
            resolved = resolver.batch(drafts, model)
            model.process(resolved)
            oldest = -math.inf if harness.watermark_us is None else harness.watermark_us - config.retention
            out = harness.process(resolved)
            fold(table, out.changes)
            refused = {row["id"] for row in [*out.late, *out.dead]}
            accepted += [row for row in resolved if row["id"] not in refused and row["time_us"] >= oldest]
        assert harness.watermark_us == max((row["time_us"] for row in accepted), default=None)
    expected = [{**row, "n": row["event_count"], "revision": 0} for row in SQL.sessionize_events(accepted, config.gap)]
    final = [canonical_session(row, ALL, revision=False) for row in live(table, -math.inf)]
    assert final == [canonical_session(row, ALL) for row in expected]


MIXED = {"config": configs(), "drafted": batches(rows("ab"))}
VALUED = st.sampled_from([0.0, 1.0, 2.0, 3.0])
EVENTS = {"config": configs(aggregates=ALL), "drafted": batches(events("abc", VALUED))}

test_folded_changes_equal_the_store_and_sql = ci(50, **MIXED)(check_tables)
test_folded_changes_equal_the_store_and_sql_slow = slow(50, **MIXED)(check_tables)
test_events_equal_sql_window_functions = ci(40, **EVENTS)(check_events_in_sql)
test_events_equal_sql_window_functions_slow = slow(40, **EVENTS)(check_events_in_sql)


LIMITED = in_each(25, check_tables, lambda limits: {"config": configs(limits=limits), "drafted": batches(rows("ab"))})
test_gap_by_equals_sql, test_gap_by_equals_sql_slow = LIMITED["gap_by"], LIMITED["gap_by_slow"]
test_max_length_equals_sql, test_max_length_equals_sql_slow = LIMITED["max_length"], LIMITED["max_length_slow"]
test_both_limits_equal_sql, test_both_limits_equal_sql_slow = LIMITED["both"], LIMITED["both_slow"]


@pytest.mark.parametrize("late_by", [0, 1])
def test_the_two_sql_oracles_agree_at_the_exact_gap_and_one_more(late_by: int) -> None:
    times = [0, 10, 10, 20 + late_by]
    accepted = [{"key": "a", "time_us": time, "v": 1.0, "id": str(n)} for n, time in enumerate(times)]
    partials = [
        {"key": "a", "start_us": time, "end_us": time, "event_count": 1, "v": 1.0, "batch_id": 0} for time in times
    ]
    by_events = [
        {name: row[name] for name in ("key", "start_us", "end_us", "event_count", "total", "least", "most")}
        for row in SQL.sessionize_events(accepted, 10)
    ]
    assert by_events == SQL.sessionize_partials(partials, [], 10)
    assert [row["end_us"] for row in by_events] == ([20] if late_by == 0 else [10, 21])
