"""Lookups without Spark: what an event gets, which event is refused, and where looked-up columns may stand."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.errors import ConfigError
from sessionlake.standalone import Pipeline
from sessionlake.testing import Harness

USERS = [
    {"id": "ann", "country": "DE", "plan": "pro"},
    {"id": "bob", "country": "US", "plan": "free"},
    {"id": "cyn", "country": None, "plan": "pro"},
]
LOOKUP = {"name": "users", "path": "users", "on": "user = id", "columns": ["country", "plan"]}
CLICKS = [{"user": name, "at": at} for at, name in enumerate(["ann", "bob", "cyn", "eve", None])]


def config(*lookups: Mapping[str, Any], **event: Any) -> dict[str, Any]:
    return {
        "source": {"kind": "files", "path": "clicks", "format": "json"},
        "event": {"key": "user", "time": "at", "time_unit": "us", **event},
        "session": {"gap": "1 hour"},
        "aggregates": {"clicks": "count()", "countries": "collect_set(users_country, 9)"},
        "lookup": list(lookups) or [LOOKUP],
    }


def rows_of(given: Mapping[str, Any], rows: Sequence[dict[str, Any]], **lookups: Any) -> tuple[dict[Any, Any], Any]:
    """Return the sessions by key, and the output."""
    with Harness(given, lookups=lookups or {"users": USERS}) as harness:
        output = harness.process(rows)
    return {row["session_key"]: (row["clicks"], row["countries"]) for row in output.changes}, output


def test_an_event_without_a_row_gets_nulls() -> None:
    sessions, output = rows_of(config(), CLICKS)
    assert sessions == {"ann": (1, ["DE"]), "bob": (1, ["US"]), "cyn": (1, []), "eve": (1, [])}
    assert [(row["user"], row["reason"]) for row in output.dead] == [(None, "null key")]
    assert (output.counts["found:users"], output.counts["missing:users"]) == (3, 2)


def test_an_event_without_a_row_is_refused_if_that_is_asked_for() -> None:
    sessions, output = rows_of(config({**LOOKUP, "missing": "dead_letter"}), CLICKS)
    assert set(sessions) == {"ann", "bob", "cyn"}
    assert {(row["user"], row["reason"]) for row in output.dead} == {
        ("eve", "no row in users"),
        (None, "no row in users"),
    }
    assert output.counts["input"] == output.counts["accepted"] + output.counts["dead"] == 5


def test_a_lookup_that_nothing_reads_refuses_too() -> None:
    given = config({**LOOKUP, "missing": "dead_letter"})
    given["aggregates"] = {"clicks": "count()"}
    with Harness(given, lookups={"users": USERS}) as harness:
        assert harness.process(CLICKS).counts["dead"] == 2


@pytest.mark.parametrize(
    ("where", "filtered", "dead"),
    [
        # A row that `where` leaves out for other columns is not looked at further; one that it can't judge is refused.
        ("at < 2", 3, 0),
        ("at >= 3", 3, 2),
        ("users_plan = 'pro'", 1, 2),
    ],
)
def test_where_comes_after_the_lookup(where: str, filtered: int, dead: int) -> None:
    _, output = rows_of(config({**LOOKUP, "missing": "dead_letter"}, where=where), CLICKS)
    counts = output.counts
    assert (counts["filtered"], counts["dead"], counts["input"]) == (filtered, dead, 5)


def test_key_and_computed_columns_may_be_looked_up() -> None:
    given = config(key="place", columns={"place": "coalesce(users_country, 'nowhere')"})
    sessions, _ = rows_of(given, CLICKS)
    assert {key: clicks for key, (clicks, _) in sessions.items()} == {"DE": 1, "US": 1, "nowhere": 3}


def test_each_event_once_with_what_is_looked_up() -> None:
    given = config(id="n", unique_for="1 hour", where="users_plan is not null")
    clicks = [{"n": name, **click} for name in ("x", "y") for click in CLICKS[:4]]
    with Harness(given, lookups={"users": USERS}) as harness:
        for _ in range(2):
            output = harness.process([*clicks, *clicks])
    assert (output.counts["duplicate"], output.counts["filtered"]) == (12, 4)
    with Harness(given, lookups={"users": USERS}) as harness:
        rows = harness.process([*clicks, *clicks]).changes
    assert {row["session_key"]: (row["clicks"], row["countries"]) for row in rows} == {
        "ann": (2, ["DE"]), "bob": (2, ["US"]), "cyn": (2, []),
    }  # fmt: skip


def test_a_lookup_compares_what_one_above_it_has_found() -> None:
    prices = {"name": "prices", "path": "prices", "on": "users_plan = plan", "columns": ["euros"]}
    given = config(LOOKUP, prices)
    given["aggregates"] = {"clicks": "count()", "countries": "sum(prices_euros)"}
    sessions, _ = rows_of(
        given, CLICKS, users=USERS, prices=[{"plan": "pro", "euros": 9}, {"plan": "free", "euros": 0}]
    )
    assert {key: euros for key, (_, euros) in sessions.items()} == {"ann": 9, "bob": 0, "cyn": 9, "eve": None}


def test_several_columns_are_compared_by_their_texts() -> None:
    lookup = {"name": "users", "path": "x", "on": ["user = id", "cast(shop as string) = shop"], "columns": ["country"]}
    table = [{"id": "ann", "shop": "1", "country": "DE"}, {"id": "ann", "shop": "2", "country": "AT"}]
    clicks = [{"user": "ann", "at": number, "shop": number} for number in range(4)]
    sessions, output = rows_of(config(lookup), clicks, users=table)
    assert sessions == {"ann": (4, ["DE", "AT"])}
    assert output.counts["missing:users"] == 2


def test_the_row_of_the_events_time() -> None:
    lookup = {**LOOKUP, "columns": ["country"], "as_of": "event_time", "valid_from": "since"}
    since = pa.array([None, 2_000_000], pa.timestamp("us", "UTC"))
    table = pa.table({"id": ["ann", "ann"], "country": ["DE", "AT"], "since": since})
    given = config(lookup)
    given["session"]["gap"] = "1 us"
    clicks = [{"user": "ann", "at": at} for at in (-1, 0, 1_999_999, 2_000_000)]
    with Harness(given, lookups={"users": table}) as harness:
        rows = harness.process(clicks).changes
    assert [(row["session_start"], row["countries"]) for row in rows] == [(-1, ["DE"]), (1_999_999, ["DE", "AT"])]


def test_sides_of_a_join_have_lookups_of_their_own() -> None:
    source = {"kind": "files", "path": "x", "format": "json"}
    event = {"time": "at", "time_unit": "us"}
    left = {
        "name": "clicks",
        "size": "1 hour",
        "columns": ["users_plan"],
        "source": source,
        "event": event,
        "lookup": [LOOKUP],
    }
    right = {
        "name": "orders",
        "size": "1 hour",
        "columns": ["price"],
        "source": {**source, "path": "y"},
        "event": event,
    }
    given = {"join": {"on": ["users_country = country"], "retention": "1 day", "left": left, "right": right}}
    with Harness(given, lookups={"users": USERS}) as harness:
        output = harness.process(
            {"left": [{"user": "ann", "at": 0}], "right": [{"country": "DE", "at": 1, "price": 3}]}
        )
    assert [(row["clicks_users_plan"], row["orders_price"]) for row in output.changes] == [("pro", 3)]


def test_messages_are_looked_up_without_spark_too(tmp_path: Path) -> None:
    with Pipeline(tmp_path, config(), lookups={"users": USERS}) as run:
        run.add_message({"user": "bob", "at": 0}, clock_us=0)
        assert [row["countries"] for row in run.get_result()] == [["US"]]


@pytest.mark.parametrize(
    ("lookups", "told"),
    [
        ({}, r"^lookup\.users: there are no rows for it; give them, as in lookups=\{'users': rows\}$"),
        ({"users": [{"name": "ann"}]}, r"^lookup\.users\.on: 'id' is no column of 'users'; write one of name\n"),
        (
            {"users": [*USERS, USERS[0]]},
            r"^lookup\.users: the table of these rows has 1 row with the key of another row$",
        ),
        (
            {"users": [{"id": "a", "country": "x"}]},
            r"^lookup\.users\.columns: 'plan' is no column of 'users'; write one of id, country$",
        ),
        (
            {"users": [{**USERS[0], "plan": [1]}]},
            r"^lookup\.users\.columns: 'plan' is list<.*>, and events have texts, numbers",
        ),
    ],
)
def test_rows_that_can_not_be_looked_up(lookups: Any, told: str) -> None:
    with Harness(config(), lookups=lookups) as harness, pytest.raises(ConfigError, match=told):
        harness.process(CLICKS)


@pytest.mark.parametrize(
    ("lookups", "told"),
    [
        (
            [{**LOOKUP, "on": "prices_id = id"}, {**LOOKUP, "name": "prices", "columns": ["id"]}],
            r"lookup\.users\.on: 'prices_id' is a column of lookup 'prices', which is not above this one; move it there",
        ),
        (
            [{**LOOKUP, "on": "users_plan = plan"}],
            r"lookup\.users\.on: 'users_plan' is a column of lookup 'users', which is not",
        ),
        (
            [{**LOOKUP, "name": "a", "columns": ["b_c"]}, {**LOOKUP, "name": "A_b", "columns": ["C"]}],
            r"lookup\.A_b\.columns: 'A_b_C' is a column of lookup 'a', too; give one of the two another name",
        ),
        ([{**LOOKUP, "columns": ["plan", "Plan"]}], r"lookup\.users\.columns: 'Plan' is there twice"),
    ],
)
def test_columns_that_are_not_found_yet_or_found_twice(lookups: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Harness(config(*lookups))


LAST_DAY = pa.array([2**31 - 1], pa.date32())


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"id": [["ann"]]}, r"users\.on: 'id' is list<item: string>, and has no text to compare; name a column of "),
        ({"id": [b"ann"]}, r"users\.on: 'id' is binary, and has no text to compare"),
        (
            {"since": pa.array([1], pa.duration("us"))},
            r"users\.valid_from: 'since' is duration\[us\], and can't be a time",
        ),
        (
            {"since": LAST_DAY},
            r"users: the table of these rows has a time that is out of range, or a text that is no UTF-8",
        ),
        (
            {"since": pa.array([1], pa.timestamp("ns"))},
            r"lookups: column 'since' of 'users' is timestamp\[ns\], and has values",
        ),
    ],
)
def test_columns_that_can_not_be_compared(columns: dict[str, Any], told: str) -> None:
    table = pa.table({"id": ["ann"], "country": ["DE"], "since": pa.array([0], pa.timestamp("us")), **columns})
    lookup = {**LOOKUP, "columns": ["country"], "as_of": "event_time", "valid_from": "since"}
    with Harness(config(lookup), lookups={"users": table}) as harness, pytest.raises(ConfigError, match=told):
        harness.process(CLICKS)


def test_a_table_of_a_test_may_be_without_rows() -> None:
    schema = pa.schema({"id": pa.string(), "country": pa.string(), "plan": pa.string()})
    sessions, _ = rows_of(config(), CLICKS[:1], users=schema.empty_table())
    assert sessions == {"ann": (1, [])}
    with pytest.raises(ConfigError, match=r"^lookup\.users: its rows have no columns; give a pyarrow\.Table"):
        rows_of(config(), CLICKS, users=[])
