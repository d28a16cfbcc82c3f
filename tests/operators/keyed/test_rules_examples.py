"""The examples of docs/rules.md, rules 150 to 154, and the boundaries of these rules."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.errors import PipelineStateError
from sessionlake.operators.keyed.order import Versions, latest
from sessionlake.testing.tables import TableHarness

Row = dict[str, Any]
MINUTE = 60_000_000


def at(time: str, plus: int = 0) -> int:
    """Return a time of day in microseconds."""
    hours, minutes = time.split(":")
    return (int(hours) * 60 + int(minutes)) * MINUTE + plus


def update(key: str, time: int, v: int | None = None, **more: Any) -> Row:
    return {"key": key, "time_us": time, "v": v, **more}


@pytest.fixture
def table() -> Iterator[TableHarness]:
    with TableHarness({"v": "long"}, retention="1 hour", event_id="eid") as harness:
        yield harness


def values(table: TableHarness) -> dict[str, int | None]:
    return {key: row["v"] for key, row in table.rows().items()}


@pytest.fixture
def at_noon(table: TableHarness) -> TableHarness:
    """W = 12:00, and `b` was deleted at 10:00."""
    table.process([update("w", at("12:00"), 0), update("b", at("10:00"), deleted=True)])
    return table


@pytest.mark.parametrize(
    ("time", "dead"),
    [(at("11:00"), False), (at("10:00", 1), False), (at("10:00"), True), (at("09:00"), True)],
)
def test_update_at_or_before_the_last_deletion_is_refused(at_noon: TableHarness, time: int, *, dead: bool) -> None:
    output = at_noon.process([update("a", time, 1)])
    assert [row["reason"] for row in output.dead] == ["beyond retention"] * dead
    assert ("a" in values(at_noon)) is not dead


def test_update_at_the_horizon_is_accepted_and_one_before_is_not(table: TableHarness) -> None:
    table.process([update("w", at("12:00"), 0), update("b", at("11:30"), deleted=True)])
    output = table.process([update("a", at("11:00"), 1), update("c", at("11:00", -1), 1)])
    assert [row["key"] for row in output.dead] == ["c"]
    assert values(table) == {"a": 1, "w": 0}


def test_an_older_deletion_does_not_take_the_last_ones_place(table: TableHarness) -> None:
    table.process([update("w", at("12:00"), 0), update("b", at("11:30"), deleted=True)])
    table.process([update("c", at("11:10"), deleted=True), update("w", at("13:00"), 0)])
    assert [row["key"] for row in table.process([update("a", at("11:30"), 1)]).dead] == ["a"]
    assert not table.process([update("a", at("11:30", 1), 1)]).dead


def test_without_a_deletion_updates_of_any_age_are_accepted(table: TableHarness) -> None:
    table.process([update("w", at("12:00"), 0)])
    assert not table.process([update("a", -(10**15), 1)]).dead
    assert values(table) == {"a": 1, "w": 0}


def test_an_unmarked_deletion_refuses_what_it_would_have_outranked(table: TableHarness) -> None:
    """A row of long ago is deleted by a correction, without a marker that lasts: an older update must not stay for ever."""
    table.process([update("a", at("10:00"), 1), update("w", at("20:00"), 0)])
    table.process([{"kind": "tombstone", "key": "a", "revision": 0}])
    assert [row["key"] for row in table.process([update("a", at("09:00"), 2)]).dead] == ["a"]
    assert values(table) == {"w": 0}


def test_a_longer_retention_brings_no_forgotten_deletion_back(at_noon: TableHarness) -> None:
    at_noon.process([update("w", at("12:30"), 0)])
    assert at_noon.state["horizon_us"] == at("11:30")
    spec = at_noon._operator.spec
    object.__setattr__(spec, "retention_us", at("10:00"))
    at_noon.process([update("w", at("12:31"), 0)])
    assert at_noon.state["horizon_us"] == at("11:30")


@pytest.mark.parametrize(("time", "expected"), [(at("11:40"), {"a": 2}), (at("11:20"), {})])
def test_a_tombstone_comes_before_the_updates_of_its_batch(
    table: TableHarness, time: int, expected: dict[str, int]
) -> None:
    table.process([update("a", at("11:30"), 1)])
    table.process([{"kind": "tombstone", "key": "a", "revision": 0}, update("a", time, 2)])
    assert values(table) == expected


def test_the_row_that_a_tombstone_deleted_does_not_come_back_by_its_own_event(table: TableHarness) -> None:
    table.process([update("a", at("11:30"), 1, eid="1")])
    table.process([{"kind": "tombstone", "key": "a", "revision": 0}])
    table.lose_stores()
    table.process([update("a", at("11:30"), 1, eid="1")])
    assert values(table) == {}
    table.process([update("a", at("11:30"), 1, eid="2")])
    assert values(table) == {"a": 1}


def test_tombstones_are_stale_at_another_revision_and_beside_a_lower_id(table: TableHarness) -> None:
    table.process([update("a", at("11:30"), 1)])
    output = table.process(
        [
            {"kind": "tombstone", "key": "a", "revision": 1, "correction_id": "0"},
            {"kind": "tombstone", "key": "a", "revision": 0, "correction_id": "2"},
            {"kind": "tombstone", "key": "a", "revision": 0, "correction_id": "1"},
            {"kind": "tombstone", "key": "b", "revision": 0, "correction_id": "3"},
            {"kind": "replace", "key": "a", "correction_id": "4"},
        ]
    )
    assert output.stale == ["0", "2", "3"]
    assert {name: output.counts[name] for name in ("corrections", "applied", "stale", "malformed")} == {
        "corrections": 5,
        "applied": 1,
        "stale": 3,
        "malformed": 1,
    }
    assert [(row["op"], row["cause"]) for row in output.changes] == [("delete", "tombstone")]


@pytest.mark.parametrize(
    ("given", "counted", "expected"),
    [
        (update("a", at("11:29"), 0), "superseded", 1),
        (update("a", at("11:30"), 1, eid="1"), "unchanged", 1),
        (update("a", at("11:30"), 0, eid="2"), "changed", 0),
        (update("a", at("11:30"), 0, eid=None), "superseded", 1),
        (update("a", at("11:30"), 0, eid="1", deleted=True), "changed", None),
        (update("a", at("11:30", 1), None), "changed", None),
    ],
)
def test_which_update_holds(table: TableHarness, given: Row, counted: str, expected: int | None) -> None:
    table.process([update("a", at("11:30"), 1, eid="1")])
    assert table.process([given]).counts[counted] == 1
    assert values(table).get("a") == expected


def test_a_marker_holds_until_the_horizon_passes_it(table: TableHarness) -> None:
    table.process([update("a", at("11:30"), deleted=True)])
    assert table.process([update("a", at("11:20"), 1), update("w", at("12:30"), 0)]).counts["superseded"] == 1
    assert table.process([update("a", at("11:30"), 1), update("w", at("12:31"), 0)]).counts["superseded"] == 1
    assert table.process([update("a", at("11:20"), 1)]).counts["dead"] == 1
    assert values(table) == {"w": 0}


def test_a_delete_is_forwarded_also_where_the_key_had_no_row(table: TableHarness) -> None:
    output = table.process([update("a", at("11:30"), deleted=True)])
    assert [(row["op"], row["table_key"], row["event_time"], row["v"]) for row in output.changes] == [
        ("delete", "a", at("11:30"), None)
    ]


def test_by_offset_the_greater_offset_holds_at_any_age() -> None:
    with TableHarness({"v": "long"}, retention="1 hour", order="offset") as table:
        table.process([update("a", at("12:00"), 1, offset=7), update("b", at("12:00"), offset=8, deleted=True)])
        output = table.process([update("a", at("01:00"), 2, offset=9), update("a", at("13:00"), 3, offset=6)])
        assert (output.counts["changed"], output.counts["superseded"], output.dead) == (1, 1, [])
        assert values(table) == {"a": 2}
        assert [row["table_key"] for row in table.changelog()] == ["a", "a"]


def test_by_offset_a_key_in_two_partitions_is_refused() -> None:
    for second in (
        [update("a", 1, offset=2, partition=1)],
        [update("a", 1, offset=1), update("a", 2, offset=2, partition=1)],
    ):
        with TableHarness({"v": "long"}, order="offset") as table:
            table.process([update("a", 0, 1, offset=9), update("b", 0, offset=7, partition=1)])
            table.lose_stores()
            with pytest.raises(PipelineStateError, match="in the partitions 0 and 1") as raised:
                table.process(second)
            assert "\n" not in str(raised.value)


def test_the_watermark_moves_with_outranked_updates_too_and_by_advance(table: TableHarness) -> None:
    table.process([update("a", at("12:00"), 1), update("a", at("11:00"), 1)])
    assert table.state["watermark_us"] == at("12:00")
    table.process([{"kind": "advance", "time_us": at("13:00")}])
    table.process([update("a", at("12:30"), 1)])
    assert table.state["watermark_us"] == at("13:00")


def test_the_latest_of_each_key_come_in_the_keys_order() -> None:
    times = np.array([5, 6, 7])
    versions = Versions(
        times, times * 0, times < 0, lambda at: pa.array([""] * len(at)), lambda at: pa.array([b""] * len(at))
    )
    assert latest(np.array([2, 0, 1]), versions, by_offset=False).tolist() == [1, 2, 0]
    assert latest(np.array([1, 0, 1]), versions, by_offset=False).tolist() == [1, 2]
