import json
import pickle
from datetime import date
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.columnar.arrays import Groups
from sessionlake.errors import AggregateError, ConfigError
from tests.aggregates.columns import TYPED, every_type, order_of, randoms, typed
from tests.operators.sessions.merging import Event, by_group, events, values_of
from tests.support import examples

HERE = __name__


@every_type
@examples(40)
@given(data=st.data(), random=randoms, limit=st.integers(1, 6))
def test_collect_by_time_then_id_then_value(kind: str, data: st.DataObject, random: Random, limit: int) -> None:
    rows = data.draw(typed(kind))
    found = values_of(f"collect(x, {limit})", TYPED[kind][0], rows, random)
    for group, members in by_group(rows).items():
        some = [m for m in members if m.value is not None]
        some.sort(key=lambda m: (m.time, m.id or "", order_of(m.value)))
        assert [order_of(v) for v in found[group]] == [order_of(m.value) for m in some[:limit]]


class Longest:
    """The longest text and the number of events; `columns` names one column."""

    columns = ("x",)
    value_type = "long"

    def initializer(self) -> Any:
        return {"n": 0, "longest": ""}

    def aggregator(self, key: str, event: dict[str, Any], aggregate: Any) -> Any:
        assert key.startswith("k")
        return self.merger(key, aggregate, {"n": 1, "longest": event["x"] or ""})

    def merger(self, key: str, left: Any, right: Any) -> Any:
        assert key.startswith("k")
        return {
            "n": left["n"] + right["n"],
            "longest": max(left["longest"], right["longest"], key=lambda t: (len(t), t)),
        }

    def result(self, aggregate: Any) -> int:
        return 100 * aggregate["n"] + len(aggregate["longest"])


class Columns:
    """Which columns the events had; names none, so it reads all."""

    def initializer(self) -> Any:
        return []

    def aggregator(self, key: str, event: dict[str, Any], aggregate: Any) -> Any:
        return self.merger(key, aggregate, sorted(event))

    def merger(self, _key: str, left: Any, right: Any) -> Any:
        return sorted({*left, *right})


class Packed:
    """A sum with a form of its own in the store."""

    columns = "x"
    value_type = "double"

    def initializer(self) -> Any:
        return (0,)

    def aggregator(self, _key: str, event: dict[str, Any], aggregate: Any) -> Any:
        return (aggregate[0] + (event["x"] or 0),)

    def merger(self, _key: str, left: Any, right: Any) -> Any:
        return (left[0] + right[0],)

    def serialize(self, aggregate: Any) -> bytes:
        return b"%d" % aggregate[0]

    def deserialize(self, data: bytes) -> Any:
        return (int(data),)

    def result(self, aggregate: Any) -> float | None:
        return aggregate[0] / 2 if aggregate[0] else None


class Wrong(Longest):
    def result(self, aggregate: Any) -> Any:
        return f"{aggregate['n']} events"


@given(rows=events(st.text(max_size=4)), random=randoms)
def test_users_class_with_its_result(rows: list[Event], random: Random) -> None:
    found = values_of(f"{HERE}:Longest", pa.string(), rows, random)
    for group, members in by_group(rows).items():
        assert found[group] == 100 * len(members) + max(len(m.value or "") for m in members)


@given(rows=events(st.integers(-9, 9)), random=randoms)
def test_users_class_with_its_own_serde(rows: list[Event], random: Random) -> None:
    found = values_of(f"{HERE}:Packed", pa.int64(), rows, random)
    for group, members in by_group(rows).items():
        assert found[group] == (sum(m.value or 0 for m in members) / 2 or None)


def test_users_class_without_columns_reads_every_column() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Columns"}, {})
    columns = {"x": pa.array([1, 2]), "y": pa.array(["a", None]), "z": pa.array([[1], [2, 3]])}
    states = aggregate.lift(Events(pa.array(["k", "l"]), np.array([1, 2]), columns))
    assert aggregate.inputs == ()
    assert [json.loads(v) for v in aggregate.value(states).to_pylist()] == [["x", "y", "z"]] * 2


def test_users_class_where_no_column_is_read_still_sees_each_event() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Columns"}, {})
    states = aggregate.lift(Events(pa.array(["k", "l"]), np.array([1, 2]), {}))
    assert aggregate.value(states).to_pylist() == ["[]", "[]"]


def test_columns_given_as_one_text_are_one_column() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Packed"}, {})
    assert aggregate.inputs == ("x",)


def test_users_class_survives_pickling() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Longest"}, {})
    again = pickle.loads(pickle.dumps(aggregate))  # noqa: S301, our own object
    assert again.lift(Events(pa.array(["k"]), np.array([1]), {"x": pa.array(["é"])}))[0].to_pylist() == [
        b'{"longest": "\\u00e9", "n": 1}'
    ]


def test_result_of_another_type_than_declared_is_told() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Wrong"}, {})
    with pytest.raises(ConfigError, match=r"aggregates\.a: .*Wrong\.result .* value_type long"):
        aggregate.value([pa.array([b'{"n": 1, "longest": ""}'])])


class Largest:
    """KIP-94's reduce of one column."""

    columns = "x"
    value_type = "long"

    def reducer(self, left: int, right: int) -> int:
        return max(left, right)


class NewestRow:
    """KIP-94's reduce of whole rows, in which a time is a text."""

    def reducer(self, left: Any, right: Any) -> Any:
        return max(left, right, key=lambda row: (row["at"], row["x"]))

    def result(self, aggregate: Any) -> str:
        return str(aggregate["x"])


class Raising(Largest):
    def reducer(self, left: int, right: int) -> int:
        raise ValueError(left + right)


@given(rows=events(st.integers(-9, 9)), random=randoms)
def test_a_reducer_of_one_column_leaves_nulls_out(rows: list[Event], random: Random) -> None:
    found = values_of(f"{HERE}:Largest", pa.int64(), rows, random)
    for group, members in by_group(rows).items():
        assert found[group] == max((m.value for m in members if m.value is not None), default=None)


def test_a_reducer_of_rows_is_handed_rows() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:NewestRow"}, {})
    days = pa.array([date(2026, 1, day) for day in (2, 3, 1)])
    states = aggregate.lift(Events(pa.array(["k"] * 3), np.arange(3), {"x": pa.array(["a", "b", "c"]), "at": days}))
    groups = Groups(np.array([0]), 3, lambda: pa.array(["k"]))
    assert aggregate.value(aggregate.merge(states, groups)).to_pylist() == ["b"]


def test_a_reducer_that_raises_is_named() -> None:
    (aggregate,) = build_aggregates({"a": f"{HERE}:Raising"}, {})
    states = aggregate.lift(Events(pa.array(["k"] * 2), np.arange(2), {"x": pa.array([1, 2])}))
    with pytest.raises(AggregateError, match=r"Raising\.reducer raised ValueError: 3 at test_lists\.py:\d+, for a key"):
        aggregate.merge(states, Groups(np.array([0]), 2, lambda: pa.array(["k"])))
