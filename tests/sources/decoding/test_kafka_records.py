"""Records as workers decode them, without Spark or a broker."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.kafka_records import (
    NULL_VALUE,
    TOMBSTONE_HEADERS,
    Topic,
    decode_records,
    split_tombstones,
)
from sessionlake.sources.decoding.lines import index_values
from sessionlake.sources.record_columns import META
from tests.support import examples

TOPIC = Topic("clicks", avro=False)
COLUMNS = EventColumns("k", "t", None, None, ("n",), {"k": pa.string(), "t": pa.string(), "n": pa.int64()})
HEADER_TYPE = pa.struct([(name, pa.binary()) for name in TOMBSTONE_HEADERS])
GOOD = b'{"k":"a","t":"x","n":1}'


def records(values: list[bytes | None], headers: list[dict[str, bytes] | None] | None = None, **more: Any) -> pa.Table:
    rows = len(values)
    columns = {
        "value": pa.array(values, pa.binary()),
        "partition": pa.array([3] * rows, pa.int32()),
        "offset": pa.array(range(100, 100 + rows)),
        "timestamp": pa.array([1_700_000_000_123_000] * rows, pa.timestamp("us", "UTC")),
        "tombstone": pa.array(headers or [None] * rows, HEADER_TYPE),
    }
    return pa.table(columns | more)


def outcome(values: list[bytes | None], columns: EventColumns = COLUMNS, **more: Any) -> dict[int, tuple[Any, ...]]:
    """Return (values, error, raw) of each record by its place in the list."""
    found: dict[int, tuple[Any, ...]] = {}
    for decoded in decode_records(records(values, **more), TOPIC, columns):
        every = np.arange(len(decoded.table))
        position, raw = decoded.position(every).to_pylist(), decoded.raw(every).to_pylist()
        for row, values_of_row in enumerate(decoded.table.to_pylist()):
            place, _, time = position[row].partition("@")
            assert time == "2023-11-14T22:13:20.123Z"
            topic, partition, offset = place.split("/")
            assert (topic, partition) == ("clicks", "3")
            found[int(offset) - 100] = (tuple(values_of_row.values()), decoded.error[row].as_py(), raw[row])
    return found


@pytest.mark.parametrize(
    ("value", "expected", "error"),
    [
        (GOOD, ("a", "x", 1), None),
        (json.dumps({"k": "a", "t": "x", "n": 1}, indent=2).encode().replace(b"\n", b"\r\n"), ("a", "x", 1), None),
        (b"\n \t" + GOOD + b"\r\n", ("a", "x", 1), None),
        (GOOD + b"\n" + GOOD, (None, None, None), "bad JSON: Extra data: line 1 column 25 (char 24)"),
        (b'{"k":"a\nb"}', (None, None, None), "bad JSON: Invalid control character at: line 1 column 8 (char 7)"),
        (b"", (None, None, None), "bad JSON: Expecting value: line 1 column 1 (char 0)"),
        (b" \n", (None, None, None), "bad JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"null", (None, None, None), "bad JSON: not an object"),
        (b'{"k":"\xff"}', (None, None, None), "bad JSON: not UTF-8 at byte 6"),
        (b'{"n":"1x"}', (None, None, None), "wrong type: n = '1x' is not a long"),
        (None, (None, None, None), NULL_VALUE),
    ],
)
def test_one_record_between_good_ones(value: bytes | None, expected: tuple[Any, ...], error: str | None) -> None:
    before, row, after = outcome([GOOD, value, GOOD]).values() if value is not None else _in_order([GOOD, value, GOOD])
    assert before == after == (("a", "x", 1), None, GOOD.decode())
    assert row == (expected, error, None if value is None else value.decode(errors="replace"))
    assert outcome([value]) == {0: row}


def _in_order(values: list[bytes | None]) -> list[tuple[Any, ...]]:
    return [found for _, found in sorted(outcome(values).items())]


_PIECES = [
    b"{",
    b"}",
    b'"',
    b'"k":',
    b'"a"',
    b",",
    b":",
    b"\n",
    b"\r",
    b"\t",
    b" ",
    b"1",
    b"null",
    b"[",
    b"]",
    b"\\",
    b"\xc3",
    GOOD,
]
_VALUES = st.one_of(st.none(), st.just(GOOD), st.lists(st.sampled_from(_PIECES), max_size=8).map(b"".join))


@examples(300)
@given(st.lists(_VALUES, min_size=1, max_size=60))
def test_a_record_never_hangs_on_its_neighbours(values: list[bytes | None]) -> None:
    together = outcome(values)
    assert sorted(together) == list(range(len(values)))
    alone = {value: outcome([value])[0] for value in values}
    assert together == {place: alone[value] for place, value in enumerate(values)}


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=30))
def test_a_line_is_a_value(values: list[bytes]) -> None:
    lines = index_values(pa.array([b"before", *values], pa.binary()).slice(1))
    tabs = bytes.maketrans(b"\r\n", b"\t\t")
    assert [lines.content(row) for row in range(len(lines))] == [v.translate(tabs).strip(b" \t") for v in values]


def test_the_records_own_columns_stand_before_those_of_the_value() -> None:
    columns = EventColumns("_key", "_timestamp", None, "_offset", ("_partition",), META)
    found = outcome([b"anything", b'{"_key":"theirs"}'], columns, key=pa.array([b"k", b"\xff"]))
    assert found[0][0][0] == "k"
    assert found[0][0][2:] == (100, 3)
    assert found[0][1] is None
    assert found[1][1] == "wrong type: _key = b'\\xff' is not a string"


def test_tombstones_are_corrections() -> None:
    whole = {"key": b"user", "start": b"1700000000000001", "revision": b"7"}
    bad = {"key": b"\xff", "start": b"soon", "revision": b"7"}
    table = records([GOOD, None, None, None, None], [None, {**whole, "correction": b"c-1"}, whole, bad, None])
    events, tombstones = split_tombstones(table, TOPIC)
    assert events["offset"].to_pylist() == [100, 104]
    place = [f"clicks/3/{offset}@2023-11-14T22:13:20.123Z" for offset in (101, 102, 103)]
    assert tombstones["correction_id"].to_pylist() == [f"c-1@{place[0]}", *place[1:]]
    assert set(tombstones["kind"].to_pylist()) == {"tombstone"}
    assert tombstones["key"].to_pylist() == ["user", "user", None]
    assert tombstones["start_time"].cast(pa.int64()).to_pylist() == [1700000000000001] * 2 + [None]
    assert tombstones["revision"].to_pylist() == [7, 7, 7]


def test_a_tombstone_with_a_cause_names_its_row_by_the_place_of_its_record() -> None:
    whole = {"key": b"user", "revision": b"7", "offset": b"12", "cause": b"ttl"}
    _, tombstones = split_tombstones(records([None, None], [whole, {**whole, "offset": b"?"}]), TOPIC)
    assert tombstones["kind"].to_pylist() == ["expiry"] * 2
    assert tombstones.select(["revision", "source_partition", "source_offset"]).to_pylist() == [
        {"revision": None, "source_partition": 3, "source_offset": 12},
        {"revision": None, "source_partition": 3, "source_offset": None},
    ]
