"""Keys, ids, joins, joins of tables and lookups of values of all pairs of types: equal as in SQL, beside DuckDB (docs/rules.md, rule 465)."""

from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.equality import family_of
from sessionlake.local.source import local_operator
from sessionlake.sources.equal_types import NeverEqualError
from sessionlake.testing import Harness, JoinHarness
from sessionlake.warehouse.schemas import TIME
from tests.support import examples

Row = dict[str, Any]
FILES = {"kind": "files", "path": "events", "format": "json"}
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int64(): [-1, 0, 1, 2, 10**16, 2**53, 2**53 + 1],
    pa.float64(): [-1.0, -0.0, 0.0, 0.5, 1.0, 1.25, 123456789012.25, 1e16, float("nan")],
    pa.decimal128(20, 2): [
        Decimal("-1.00"),
        Decimal("0.00"),
        Decimal("0.50"),
        Decimal("1.00"),
        Decimal("1.25"),
        Decimal("123456789012.25"),
        Decimal(10**16),
    ],
    pa.decimal128(24, 4): [
        Decimal("0.5000"),
        Decimal("1.0000"),
        Decimal("1.2500"),
        Decimal("1.2501"),
        Decimal("123456789012.2500"),
    ],
    pa.string(): ["", "1", "0.5", "true", "2026-01-01", "ann"],
    pa.bool_(): [True, False],
    pa.date32(): [date(2026, 1, 1), date(2026, 1, 2)],
    TIME: [MIDNIGHT, datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)],
}
TYPES = list(VALUES)
EQUAL = [(a, b) for a in TYPES for b in TYPES if family_of(a) == family_of(b)]
UNEQUAL = [(a, b) for a in TYPES for b in TYPES if family_of(a) != family_of(b)]


def drawn(type_: pa.DataType) -> st.SearchStrategy[list[int]]:
    """Draw places in VALUES: NaN is not found by its value."""
    return st.lists(st.integers(0, len(VALUES[type_]) - 1), max_size=6)


@lru_cache
def equal(a: pa.DataType, b: pa.DataType) -> set[tuple[int, int]]:
    """Return the places in VALUES of values that DuckDB finds equal, in UTC."""
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        for name, type_ in (("l", a), ("r", b)):
            values = pa.array(VALUES[type_], type_)
            database.register(name, pa.table({"at": range(len(values)), "v": values}))
        return {*database.execute("select l.at, r.at from l join r on l.v = r.v").fetchall()}


def equal_pairs(left: list[int], a: pa.DataType, right: list[int], b: pa.DataType) -> list[tuple[int, int]]:
    """Return the places of equal values in two lists of places."""
    return [(i, j) for i, one in enumerate(left) for j, other in enumerate(right) if (one, other) in equal(a, b)]


def values_of(places: list[int], type_: pa.DataType) -> list[Any]:
    return [VALUES[type_][place] for place in places]


class Typed(Harness):
    """A harness whose inputs have columns of given types, of which some are none that a schema may name."""

    def __init__(self, config: Row, types: dict[str, dict[str, pa.DataType]], lookups: Any = None) -> None:
        super().__init__(config, lookups=lookups)
        self._operator = local_operator(self._config, types, lookups)


def table_join_of(a: pa.DataType, b: pa.DataType, on: str = "k = m") -> Typed:
    sides = {"left": {"name": "a", "columns": ["at"]}, "right": {"name": "b", "columns": ["at"]}}
    config = {"table_join": {"on": [on], **{n: {**s, "source": FILES, "event": {}} for n, s in sides.items()}}}
    return Typed(config, {"left": {"k": a, "at": pa.int64()}, "right": {"m": b, "at": pa.int64()}})


def join_of(a: pa.DataType, b: pa.DataType, on: str = "k = m") -> Typed:
    side = {"size": "1 hour", "columns": ["at"], "source": FILES, "event": {"time": "at", "time_unit": "us"}}
    config = {
        "join": {"on": [on], "retention": "3 hours", "left": {"name": "a", **side}, "right": {"name": "b", **side}}
    }
    return Typed(config, {"left": {"k": a, "at": pa.int64()}, "right": {"m": b, "at": pa.int64()}})


def looked_up(a: pa.DataType, b: pa.DataType, right: list[Any], on: str = "k = m") -> Typed:
    config = {
        "source": FILES,
        "event": {"key": "user", "time": "at", "time_unit": "us"},
        "lookup": [{"name": "t", "path": "t", "on": on, "columns": ["place"]}],
        "session": {"gap": "1 hour"},
        "aggregates": {"found": "first(t_place)"},
    }
    table = pa.table({"m": pa.array(right, b), "place": pa.array(range(len(right)), pa.int64())})
    return Typed(config, {"events": {"user": pa.string(), "at": pa.int64(), "k": a}}, {"t": table})


@pytest.mark.parametrize(("a", "b"), EQUAL, ids=str)
@given(data=st.data())
@examples(5)
def test_joins_have_the_pairs_of_sql(a: pa.DataType, b: pa.DataType, data: st.DataObject) -> None:
    left, right = data.draw(drawn(a)), data.draw(drawn(b))
    rows = {
        "left": [{"k": value, "at": at} for at, value in enumerate(values_of(left, a))],
        "right": [{"m": value, "at": at} for at, value in enumerate(values_of(right, b))],
    }
    wanted = equal_pairs(left, a, right, b)
    with table_join_of(a, b) as harness:
        found = [(row["a_at"], row["b_at"]) for row in harness.process(rows).changes]
    assert sorted(found) == wanted
    with join_of(a, b) as harness:  # the only field may not be empty (rule 120)
        found = [(row["a_at"], row["b_at"]) for row in harness.process(rows).changes]
    assert sorted(found) == [pair for pair in wanted if rows["left"][pair[0]]["k"] != ""]


@pytest.mark.parametrize(("a", "b"), EQUAL, ids=str)
@given(data=st.data())
@examples(4)
def test_lookups_find_the_rows_of_sql(a: pa.DataType, b: pa.DataType, data: st.DataObject) -> None:
    left = data.draw(drawn(a))
    right: list[int] = []
    for place in data.draw(drawn(b)):
        if not equal_pairs([place], b, right, b):
            right.append(place)
    rows = [{"user": str(at), "at": at, "k": value} for at, value in enumerate(values_of(left, a))]
    with looked_up(a, b, values_of(right, b)) as harness:
        changes = harness.process(rows).changes
    wanted = dict(equal_pairs(left, a, right, b))
    assert {int(row["session_key"]): row["found"] for row in changes} == {at: wanted.get(at) for at in range(len(left))}


@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(data=st.data())
@examples(5)
def test_keys_and_ids_are_equal_as_in_sql(type_: pa.DataType, data: st.DataObject) -> None:
    places = [place for place in data.draw(drawn(type_)) if VALUES[type_][place] != ""]
    values = values_of(places, type_)
    config = {
        "source": FILES,
        "event": {"key": "k", "time": "at", "time_unit": "us", "id": "id", "unique_for": "1 day"},
        "session": {"gap": "1 hour", "grace": "1 hour", "retention": "1 day"},
        "aggregates": {"n": "count()"},
    }
    of = [min(i for i, _ in equal_pairs(places, type_, [place], type_)) for place in places]
    with Typed(config, {"events": {"at": pa.int64(), "k": type_, "id": pa.int64()}}) as harness:
        output = harness.process([{"k": value, "at": 0, "id": at} for at, value in enumerate(values)])
    assert sorted(row["n"] for row in output.changes) == sorted(of.count(place) for place in {*of})
    with Typed(config, {"events": {"at": pa.int64(), "k": pa.string(), "id": type_}}) as harness:
        output = harness.process([{"k": "ann", "at": 0, "id": value} for value in values])
    assert output.counts.get("duplicate", 0) == len(of) - len({*of})


@pytest.mark.parametrize(("a", "b"), UNEQUAL, ids=str)
def test_types_that_are_never_equal_are_refused_with_the_cast(a: pa.DataType, b: pa.DataType) -> None:
    for make in (join_of, table_join_of, lambda *given: looked_up(*given[:2], [], *given[2:])):
        with pytest.raises(NeverEqualError, match="never equal; ") as error:
            make(a, b)
        told = str(error.value)
        assert "\n" not in told
        if 'write "' in told:
            on = told.partition('write "')[2].partition('"')[0]
            with make(a, b, on):
                pass
        else:
            assert told.endswith("name columns of one kind")


@pytest.mark.parametrize("make", [join_of, table_join_of])
def test_a_cast_pairs_a_number_with_its_text(make: Any) -> None:
    with make(pa.int64(), pa.string(), "cast(k as string) = m") as harness:
        rows = {"left": [{"k": 7, "at": 0}, {"k": 10, "at": 1}], "right": [{"m": "7", "at": 0}, {"m": "07", "at": 1}]}
        (row,) = harness.process(rows).changes
    assert (row["a_at"], row["b_at"]) == (0, 0)


def test_a_cast_looks_a_text_up_in_a_table_of_numbers() -> None:
    with looked_up(pa.string(), pa.int64(), [7, 10], "k = cast(m as string)") as harness:
        output = harness.process([{"user": text, "at": 0, "k": text} for text in ("7", "07", "10")])
    assert {row["session_key"]: row["found"] for row in output.changes} == {"7": 0, "07": None, "10": 1}


def test_a_double_may_not_be_cast_there() -> None:
    with pytest.raises(NeverEqualError, match="only whole numbers, dates, true and false may be cast here"):
        join_of(pa.float64(), pa.string(), "cast(k as string) = m")


def test_sides_without_values_have_the_types_of_the_other_one() -> None:
    left, right = {"name": "a", "size": "1 hour"}, {"name": "b", "size": "1 hour"}
    with JoinHarness(on=["id"], left=left, right=right, retention="3 hours") as harness:
        harness.process([{"id": "x", "time_us": 0}], [])
        assert len(harness.process([], [{"id": "x", "time_us": 0}]).pairs) == 1
