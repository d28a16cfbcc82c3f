import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.records import Records
from sessionlake.store.layout import heads_of, pack, sessions_of, states_of, unpack

longs = st.integers(-(2**63), 2**63 - 1)
rows = st.tuples(longs, longs, longs, longs, st.binary(max_size=20))
values = st.lists(st.lists(rows, min_size=1, max_size=4), max_size=8)


def columns(sessions: list[tuple[Any, ...]], owner: list[int]) -> Records:
    numbers = [np.array([s[i] for s in sessions], np.int64) for i in range(4)]
    padded = pa.array([b"before", *(s[4] for s in sessions), b"after"], pa.binary())
    return Records(np.array(owner, np.int64), *numbers, padded.slice(1, len(sessions)))


def plain(sessions: Records) -> list[tuple[Any, ...]]:
    numbers = (sessions.codes, sessions.start, sessions.end, sessions.count, sessions.revision)
    return list(zip(*(n.tolist() for n in numbers), sessions.state.to_pylist(), strict=True))


@given(values=values, holes=st.lists(st.booleans(), max_size=20))
def test_unpack_inverts_pack_among_missing_values(values: list[list[Any]], holes: list[bool]) -> None:
    flat = [s for value in values for s in value]
    packed = pack(columns(flat, [0] * len(flat)), np.array([len(v) for v in values], np.int64)).to_pylist()
    rest, given_, expected = iter(zip(packed, values, strict=True)), [], []
    for hole in [*holes, *[False] * len(values)]:
        item = None if hole else next(rest, None)
        given_.append(item and item[0])
        expected += [(len(given_) - 1, *s) for s in (item[1] if item else [])]
    assert plain(unpack(pa.array(given_, pa.binary()))) == expected


@given(values=values.filter(bool))
def test_layout_is_count_then_heads_then_states(values: list[list[Any]]) -> None:
    flat = [s for value in values for s in value]
    packed = pack(columns(flat, [0] * len(flat)), np.array([len(v) for v in values], np.int64)).to_pylist()
    for data, sessions in zip(packed, values, strict=True):
        heads = b"".join(struct.pack("<qqqqI", *s[:4], len(s[4])) for s in sessions)
        assert data == struct.pack("<I", len(sessions)) + heads + b"".join(s[4] for s in sessions)


@given(value=st.lists(rows, min_size=1, max_size=6), layout=st.sampled_from(["plain", "with until"]), picked=st.data())
def test_some_sessions_of_a_value_are_those_of_all(value: list[Any], layout: str, picked: Any) -> None:
    sessions, with_until = columns(value, [0] * len(value)), layout == "with until"
    if with_until:
        sessions = replace(sessions, until=sessions.end)
    [data] = pack(sessions, np.array([len(value)], np.int64)).to_pylist()
    places = np.array(picked.draw(st.lists(st.integers(0, len(value) - 1))), np.int64)
    heads = heads_of(data, with_until=with_until)
    found = zip((head[:-1] for head in heads[places].tolist()), states_of(data, heads, places), strict=True)
    every = sessions_of(data, with_until=with_until)
    assert list(found) == [every[place] for place in places.tolist()]


@pytest.mark.parametrize("values", [[], [None], [None, None]])
def test_unpack_of_nothing(values: list[bytes | None]) -> None:
    found = unpack(pa.array(values, pa.binary()))
    assert plain(found) == []
    assert found.state.type == pa.binary()


def test_order_of_owners_is_that_of_the_values() -> None:
    packed = pack(columns([(1, 2, 3, 4, b""), (5, 6, 7, 8, b"x")], [0, 0]), np.array([1, 1])).to_pylist()
    assert plain(unpack(pa.array([None, packed[1], None, packed[0]]))) == [(1, 5, 6, 7, 8, b"x"), (3, 1, 2, 3, 4, b"")]
