from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import StoreError
from sessionlake.stores import Lazy, Serdes, Stores

SCHEMA = pa.schema(
    [("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(
    st.text(st.characters(exclude_categories=["Cs"])), st.binary(), st.integers(-(1 << 63), (1 << 63) - 1), json_values
)
def test_values_round_trip(text: str, data: bytes, number: int, value: Any) -> None:
    for serde, given_value in (
        (Serdes.string(), text),
        (Serdes.bytes(), data),
        (Serdes.int64(), number),
        (Serdes.int32(), number >> 32),
        (Serdes.json(), value),
    ):
        assert serde.deserialize(serde.serialize(given_value)) == given_value  # type: ignore[attr-defined]


def test_arrow_keeps_types_that_json_has_not() -> None:
    serde = Serdes.arrow(SCHEMA)
    row = {"price": Decimal("12.30"), "at": datetime(2026, 1, 31, tzinfo=UTC), "tags": ["a", "b"]}
    data = serde.serialize(row)
    assert data is not None
    assert serde.deserialize(data) == row
    assert serde.deserialize(serde.serialize({"price": None}) or b"") == {"price": None, "at": None, "tags": None}


def test_numbers_are_kafkas_bytes() -> None:
    assert Serdes.int64().serialize(-2) == b"\xff" * 7 + b"\xfe"
    assert Serdes.int32().serialize(258) == b"\0\0\1\2"


def test_json_of_equal_dicts_is_equal_so_that_they_are_one_key() -> None:
    with Stores.in_memory_key_value_store("store", Serdes.json(), Serdes.int64()) as store:
        store.put({"a": 1, "b": 2}, 5)
        assert store.get({"b": 2, "a": 1}) == 5


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (Serdes.string(), 1),
        (Serdes.string(), "\ud800"),
        (Serdes.bytes(), "text"),
        (Serdes.int64(), 1 << 63),
        (Serdes.int32(), "1"),
        (Serdes.json(), float("nan")),
        (Serdes.json(), {1, 2}),
        (Serdes.arrow(SCHEMA), {"price": "cheap"}),
    ],
)
def test_what_a_serde_cannot_write_is_told_in_one_line(serde: Any, value: Any) -> None:
    with pytest.raises(StoreError, match=r"^serde \w+: .* can't be written \(.*\); use another serde$"):
        serde.serialize(value)


def test_lazy_values_are_deserialised_when_asked_and_once() -> None:
    with Stores.in_memory_key_value_store("store", Serdes.string(), Serdes.lazy(Serdes.json())) as store:
        for name in "abc":
            store.put(name, {"name": name})
        found = dict(store.all())
        assert store.deserialised == 0
        one = found["b"]
        assert isinstance(one, Lazy)
        assert one.get() == one.get() == {"name": "b"}
        assert store.deserialised == 1
        store.put("d", one)
        assert store.deserialised == 1
        again = store.get("d")
        assert isinstance(again, Lazy)
        assert again.data == one.data
        assert again.get() == {"name": "b"}
        assert store.deserialised == 2


def test_lazy_serde_alone_is_lazy_too() -> None:
    value = Serdes.lazy(Serdes.json()).deserialize(b"[1]")
    assert isinstance(value, Lazy)
    assert value.get() == [1]
