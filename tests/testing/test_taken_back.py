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
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError, PipelineStateError
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
    windows = Windows(kind="tumbling", size="1 hour", retention="1 day")
    with days(visits, "final", windows).test() as harness:
        # By the clock of this batch, 1970, ann's row is of the future.
        output = harness.process([row("ann", 500_000, 3.0)], taken_back=[row("bob", 2, 5.0)])
    assert output.dead == [{**row("bob", 2, 5.0), "reason": "retracted"}]
    assert output.counts["accepted"] == 1


def test_a_final_row_of_one_side_is_not_taken_back_although_the_other_side_has_changes(visits: Path) -> None:
    def side(name: str, rows: Any) -> dict[str, Any]:
        source = {"kind": "results", "of": "visits", "rows": rows}
        return {"name": name, "columns": ["revenue"], "source": source, "event": {}}

    sides = {"left": side("one", "final"), "right": side("two", "changes")}
    raw = {"pipeline": {"name": "both", "warehouse": "both"}, "table_join": {"on": ["session_key"], **sides}}
    with Harness(parse_config(raw, visits)) as harness:
        harness.process({name: [row("ann", 1, 3.0)] for name in ("left", "right")})
        output = harness.process({}, taken_back={"left": [row("ann", 1, 3.0)]})
        assert [one["reason"] for one in output.dead] == ["retracted"]
        assert output.changes == []
        (change,) = harness.process({}, taken_back={"right": [row("ann", 1, 3.0)]}).changes
    assert change["op"] == "delete"


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


def followed(directory: Path, **event: Any) -> Pipeline:
    return Pipeline(
        "copies",
        warehouse="lake/copies",
        source=Results("visits", rows="changes"),
        event=Event(**event),
        operator=KeyedTable(order="offset", columns=["revenue"]),
        directory=directory,
    )


def session(user: str, start: int, revenue: float) -> dict[str, Any]:
    return {**row(user, start + 1, revenue), "session_start": datetime.fromtimestamp(start * 3600, UTC)}


def test_a_table_of_sessions_has_each_session_of_a_key(visits: Path) -> None:
    """Its key is the identity of a session, if no other one is named: a key alone has several."""
    with followed(visits).test([session("ann", 1, 3.0), session("ann", 9, 5.0)]) as harness:
        assert [one["revenue"] for one in harness.last.changes] == [3.0, 5.0]
        (change,) = harness.process([], taken_back=[session("ann", 1, 3.0)]).changes
    assert (change["op"], change["session_key"], change["session_start"]) == (
        "delete",
        "ann",
        "1970-01-01 01:00:00.000000Z",
    )


ONE, OTHER = session("ann", 1, 3.0), session("ann", 9, 5.0)
NOT_ONE = (
    r"^event\.key: two rows of 'visits' have the same 'session_key', and a \[table\] has one row of each key; "
    r'write key = \["session_key", "session_start"\], and make the table again: `sessionlake rebuild CONFIG --warehouse NEW`$'
)


@pytest.mark.parametrize(
    "batches",
    [
        [([ONE, OTHER], [])],
        [([ONE], []), ([OTHER], [])],
        # The second row comes and goes within a batch: the first one is still there.
        [([ONE], []), ([{**OTHER, "offset": 9}], [{**OTHER, "offset": 10}])],
        [([ONE], []), ([{**OTHER, "offset": 9}, {**ONE, "offset": 11}], [{**ONE, "offset": 10}])],
    ],
)
def test_two_rows_of_one_key_stop_a_table(visits: Path, batches: Any) -> None:
    with followed(visits, key="session_key").test() as harness:
        for added, back in batches[:-1]:
            harness.process(added, taken_back=back)
        added, back = batches[-1]
        with pytest.raises(PipelineStateError, match=NOT_ONE):
            harness.process(added, taken_back=back)


def test_a_row_may_follow_another_one_of_its_key(visits: Path) -> None:
    """In one batch or in two, and also if it changes on the way; a row that is not in the table takes no other one away."""
    grown = {**ONE, "revenue": 4.0}
    with followed(visits, key="session_key").test([ONE]) as harness:
        back = [{**ONE, "offset": 8}, {**grown, "offset": 10}]
        (change,) = harness.process([{**grown, "offset": 9}, {**OTHER, "offset": 11}], taken_back=back).changes
        assert (change["op"], change["revenue"]) == ("upsert", 5.0)
        (change,) = harness.process([], taken_back=[{**OTHER, "offset": 12}]).changes
        assert change["op"] == "delete"
        (change,) = harness.process([{**ONE, "offset": 15}]).changes
    assert (change["op"], change["revenue"]) == ("upsert", 3.0)


def test_a_followed_delta_table_with_two_rows_of_one_key_stops(tmp_path: Path) -> None:
    people = Pipeline(
        "people",
        warehouse="lake/people",
        source=ChangeFeed("customers"),
        event=Event(key=["shop", "id"], time="_commit_timestamp", where="country <> 'no'"),
        operator=KeyedTable(order="offset", columns=["country"], delete_when="country = 'gone'"),
        directory=tmp_path,
    )

    def person(country: str) -> dict[str, Any]:
        return {"shop": 1, "id": 7, "country": country, "_commit_timestamp": datetime.fromtimestamp(0, UTC)}

    with people.test() as harness:
        # Rows that are left out, and rows that are deleted as they come, are no rows of the table.
        harness.process([person("de"), person("no")])
        harness.process([person("gone")], taken_back=[person("de")])
        harness.process([person("fr")], taken_back=[person("gone")])
        with pytest.raises(PipelineStateError) as caught:
            harness.process([person("es")])
    assert str(caught.value).startswith("event.key: two rows of '")
    assert "have the same 'shop' and 'id'" in str(caught.value)
    assert "write the columns that identify its rows, or remove one of the two there, and" in str(caught.value)


def test_rows_of_the_future_move_the_watermark_no_further_than_they_may(visits: Path) -> None:
    """No clock judges them: their times are those of any column."""
    with days(visits, "changes", Groups()).test() as harness:
        output = harness.process([row("ann", 500_000, 3.0)], clock_us=3_600_000_000)
        assert (output.counts["accepted"], harness.watermark_us) == (1, 3_660_000_000)


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("_change_type = 'delete'", "_change_type"),
        ("event_time < timestamp '2020-01-01 00:00:00'", "_commit_timestamp"),
        ("old", "_commit_version"),
        ("_offset > 7", "_offset"),
    ],
)
def test_a_condition_of_deletes_may_not_read_what_is_of_a_change(tmp_path: Path, condition: str, named: str) -> None:
    """A row would count as one when it is added, and as none when it is taken back."""
    people = Pipeline(
        "people",
        warehouse="lake/people",
        source=ChangeFeed("customers"),
        event=Event(key="id", time="_commit_timestamp", columns={"old": "_commit_version < 3"}),
        operator=KeyedTable(order="offset", columns=["country"], delete_when=condition),
        directory=tmp_path,
    )
    person = {"id": 1, "country": "de", "_change_type": "insert", "_commit_version": 7}
    with pytest.raises(ConfigError, match=rf"^table\.delete_when: .* reads {named}, which is of a change, and "):
        people.test([{**person, "_commit_timestamp": datetime.fromtimestamp(0, UTC)}])
