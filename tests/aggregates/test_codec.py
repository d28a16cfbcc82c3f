import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import Partials, concat
from sessionlake.errors import StoreError

TYPES = {"long": pa.int64(), "double": pa.float64(), "binary": pa.binary(), "rare": pa.binary()}
VALUES = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "binary": st.binary(max_size=6) | st.just(b""),
    "rare": st.none() | st.binary(min_size=16, max_size=16),
}


class Declared:
    """An aggregate as far as the codec looks: its state types."""

    def __init__(self, kinds: list[str]) -> None:
        self.state = tuple(TYPES[kind] for kind in kinds)
        self.rare = tuple(n for n, kind in enumerate(kinds) if kind == "rare")


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[tuple[Any, ...]]]:
    one = st.sampled_from([("long",), ("double",), ("binary",), ("long", "rare")])
    kinds = [kind for some in draw(st.lists(one, max_size=10)) for kind in some]
    row = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    return kinds, draw(st.lists(row, max_size=12))


def columns(kinds: list[str], rows: list[tuple[Any, ...]], before: int) -> list[pa.Array]:
    arrays = []
    for i, kind in enumerate(kinds):
        values = [row[i] for row in rows]
        arrays.append(pa.array([*[None] * before, *values, *values[:1]], TYPES[kind]).slice(before, len(rows)))
    return arrays


@given(table=tables(), before=st.integers(0, 9), after=st.integers(0, 3))
def test_decode_inverts_encode_of_slices(table: Any, before: int, after: int) -> None:
    kinds, rows = table
    codec = StateCodec([Declared(kinds)])
    states = columns(kinds, rows, before)
    packed = codec.encode(states, len(rows))
    again = pa.array([*[b"x"] * before, *packed.to_pylist(), *[None] * after], pa.binary()).slice(before, len(rows))
    for decoded in (codec.decode(packed), codec.decode(again)):
        assert [c.type for c in decoded] == [TYPES[kind] for kind in kinds]
        assert [c.to_pylist() for c in decoded] == [c.to_pylist() for c in states]
        for column in decoded:
            column.validate(full=True)
    one_by_one = [codec.decode_one(value) for value in packed.to_pylist()]
    assert one_by_one == [list(row) for row in zip(*(c.to_pylist() for c in states), strict=True)] or not kinds


@given(table=tables())
def test_a_row_is_encoded_alike_wherever_it_stands(table: Any) -> None:
    kinds, rows = table
    codec = StateCodec([Declared(kinds)])
    whole = codec.encode(columns(kinds, rows, 0), len(rows)).to_pylist()
    assert whole == [codec.encode(columns(kinds, [row], 3), 1)[0].as_py() for row in rows]


def test_layout_of_a_state() -> None:
    codec = StateCodec([Declared(["long", "binary", "double"])])
    packed = codec.encode([pa.array([-7, None]), pa.array([b"ab", b""]), pa.array([0.5, -0.0])], 2).to_pylist()
    assert packed == [
        struct.pack("<BqId", 0b11111111, -7, 2, 0.5) + b"ab",
        struct.pack("<BqId", 0b11111110, 0, 0, -0.0),
    ]


def test_rare_columns_come_last_and_only_where_they_are() -> None:
    """A state without any is what it was before there were such columns, and the other way round."""
    rare, before = (
        StateCodec([Declared(["long", "rare", "binary", "long", "rare"])]),
        StateCodec([Declared(["long", "binary", "long"])]),
    )
    columns = [
        pa.array([None, 1]),
        pa.array([b"a" * 16, None]),
        pa.array([b"x", b"y"]),
        pa.array([2, 3]),
        pa.nulls(2, pa.binary()),
    ]
    packed = rare.encode(columns, 2).to_pylist()
    assert packed == [
        struct.pack("<BqIq", 0b11111110, 0, 1, 2) + b"x" + struct.pack("<H", 0) + b"a" * 16,
        struct.pack("<BqIq", 0b11111111, 1, 1, 3) + b"y",
    ]
    old = before.encode([columns[0], columns[2], columns[3]], 2)
    assert old[1].as_py() == packed[1]
    assert [column.to_pylist() for column in rare.decode(old)] == [
        [None, 1],
        [None, None],
        [b"x", b"y"],
        [2, 3],
        [None, None],
    ]


def test_a_wide_number_of_a_column_that_has_none_is_refused() -> None:
    packed = StateCodec([Declared(["long", "long", "rare"])]).encode(
        [pa.array([1]), pa.array([None], pa.int64()), pa.array([b"a" * 16])], 1
    )
    with pytest.raises(StoreError, match="column 1, which has none"):
        StateCodec([Declared(["long", "rare", "long"])]).decode(packed)


def test_nan_and_negative_zero_survive() -> None:
    codec = StateCodec([Declared(["double"])])
    (column,) = codec.decode(codec.encode([pa.array([math.nan, -0.0])], 2))
    found = column.to_numpy()
    assert math.isnan(found[0])
    assert math.copysign(1, found[1]) == -1


@pytest.mark.parametrize("rows", [0, 1, 5000])
def test_partials_table_round_trip(rows: int) -> None:
    (aggregate,) = build_aggregates({"a": "sum(x)"}, {"x": pa.int64()})
    numbers = np.arange(rows)
    states = [pa.array(numbers, pa.int64()), pa.nulls(rows, pa.binary())]
    partials = Partials(pa.array([f"k{i}" for i in numbers], pa.string()), numbers, numbers, numbers, numbers, states)
    table = pa.concat_tables([partials.to_table().slice(0, rows // 2), partials.to_table().slice(rows // 2)])
    assert Partials.from_table(table).to_table().equals(partials.to_table())
    assert concat([partials, Partials.empty([aggregate])]).to_table().equals(partials.to_table())
    assert partials.take(numbers[::-1]).to_table().equals(partials.to_table().take(pa.array(numbers[::-1])))
