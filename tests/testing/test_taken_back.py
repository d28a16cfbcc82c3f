"""Rows of another pipeline's results in a harness: some are taken back, and no clock judges them."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sessionlake import (
    ChangeFeed,
    Count,
    Event,
    Files,
    Groups,
    KeyedTable,
    Max,
    Pipeline,
    Results,
    Sessions,
    Sum,
    Windows,
)
from sessionlake.errors import ConfigError
from sessionlake.testing import Harness

EVENT = Event(key="day", columns={"day": "cast(session_end as date)"})
AGGREGATES = {"visits": Count(), "revenue": Sum("revenue"), "most": Max("revenue")}


def row(user: str, hour: int, revenue: float) -> dict[str, Any]:
    return {"session_key": user, "session_end": datetime.fromtimestamp(hour * 3600, UTC), "revenue": revenue}


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    source, event = Files("events", format="json"), Event(key="user", time="at")
    pipeline = Pipeline(
        "visits",
        warehouse="lake/visits",
        source=source,
        event=event,
        operator=Sessions(gap="1 hour"),
        aggregates={"revenue": "sum(price)"},
        directory=tmp_path,
    )
    pipeline.save(tmp_path / "visits.toml")
    return tmp_path


def days(directory: Path, rows: Any, operator: Any) -> Pipeline:
    source = Results("visits", rows=rows)
    more = {"source": source, "event": EVENT, "operator": operator, "aggregates": AGGREGATES, "directory": directory}
    return Pipeline("days", warehouse="lake/days", **more)


def test_a_row_moves_from_its_group_to_another_one(visits: Path) -> None:
    with days(visits, "changes", Groups()).test([row("ann", 1, 3.0), row("bob", 2, 5.0)]) as harness:
        (first,) = harness.last.changes
        output = harness.process([row("bob", 25, 7.0)], taken_back=[row("bob", 2, 5.0)])
    of_day = {one["group_key"]: one for one in [first, *output.changes]}
    assert [(day, one["visits"], one["revenue"], one["most"]) for day, one in sorted(of_day.items())] == [
        ("1970-01-01", 1, 3.0, 3.0),
        ("1970-01-02", 1, 7.0, 7.0),
    ]
    assert (output.counts["input"], output.counts["accepted"], output.counts["taken_back"]) == (2, 2, 1)


def test_a_row_that_can_not_be_subtracted_is_a_dead_letter(visits: Path) -> None:
    windows = Windows(kind="tumbling", size="1 hour", retention_time="1 day")
    with days(visits, "final", windows).test() as harness:
        # By the clock of this batch, 1970, ann's row is of the future.
        output = harness.process([row("ann", 500_000, 3.0)], taken_back=[row("bob", 2, 5.0)])
    assert output.dead == [{**row("bob", 2, 5.0), "reason": "retracted"}]
    assert output.counts["accepted"] == 1


def test_other_sources_take_no_rows_back() -> None:
    source = {"kind": "files", "path": "events", "format": "json"}
    harness = Harness({"source": source, "event": {"key": "user", "time": "at"}, "group": {}})
    with pytest.raises(
        ConfigError,
        match=r"^taken_back: only kind = 'results' and 'change_feed' take rows back, and source has 'files'",
    ):
        harness.process([], taken_back=[{"user": "ann", "at": 0}])


def test_a_table_follows_rows_that_change(visits: Path) -> None:
    users = Pipeline(
        "users",
        warehouse="lake/users",
        source=Results("visits", rows="changes"),
        event=Event(key="session_key"),
        operator=KeyedTable(order="offset", columns=["revenue"]),
        directory=visits,
    )
    with users.test([row("ann", 1, 3.0), row("bob", 2, 5.0)]) as harness:
        # Ann's session is deleted, Bob's grows, and a session of the future is no error of any clock.
        output = harness.process(
            [row("bob", 3, 6.0), row("eve", 500_000, 1.0)], taken_back=[row("ann", 1, 3.0), row("bob", 2, 5.0)]
        )
    changed = {one["table_key"]: (one["op"], one["revenue"]) for one in output.changes}
    assert changed == {"ann": ("delete", None), "bob": ("upsert", 6.0), "eve": ("upsert", 1.0)}


def test_a_table_of_a_change_feed(tmp_path: Path) -> None:
    people = Pipeline(
        "people",
        warehouse="lake/people",
        source=ChangeFeed("customers"),
        event=Event(key="id", time="_commit_timestamp"),
        operator=KeyedTable(order="offset", columns=["country"]),
        directory=tmp_path,
    )

    def person(number: int, country: str | None, hour: int) -> dict[str, Any]:
        return {"id": number, "country": country, "_commit_timestamp": datetime.fromtimestamp(hour * 3600, UTC)}

    with people.test() as harness:
        harness.process([person(1, "de", 1), person(2, "fr", 1), person(3, "es", 1)])
        # 1 moves, 2 is deleted, 3 gets the number 4.
        output = harness.process(
            [person(1, "it", 2), person(4, "es", 2)],
            taken_back=[person(1, "de", 2), person(2, "fr", 2), person(3, "es", 2)],
        )
        again = harness.process([], taken_back=[person(9, "no", 3)])
    changed = {one["table_key"]: (one["op"], one["country"]) for one in output.changes}
    assert changed == {
        "1": ("upsert", "it"),
        "2": ("delete", None),
        "3": ("delete", None),
        "4": ("upsert", "es"),
    }
    assert (output.counts["changed"], output.counts["superseded"]) == (4, 1)
    assert not again.changes
    assert again.counts["unchanged"] == 1
