import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sources.columns import EventColumns
from sessionlake.sources.contract import check

TEXT = {"k": pa.string(), "t": pa.string(), "i": pa.string()}
COLUMNS = EventColumns("k", "t", None, "i", (), TEXT)


def test_all_good_has_no_reasons() -> None:
    table = pa.table({"k": ["a", "b"], "t": ["1970-01-01", "1970-01-01T00:00:01Z"], "i": ["1", None]})
    checked = check(table, pa.nulls(2, pa.string()), COLUMNS)
    assert checked.time_us.tolist() == [0, 1_000_000]
    assert (checked.key.to_pylist(), checked.event_id.to_pylist()) == (["a", "b"], ["1", None])
    assert checked.reason is None


def test_first_reason_wins() -> None:
    day = "1970-01-01"
    rows = [
        ("a", day, None, None),
        (None, None, "bad JSON: x", "bad JSON: x"),
        (None, "x", None, "null key"),
        ("", None, None, "empty key"),
        (" ", day, None, None),
        ("a", None, None, "null time"),
        ("a", "", None, "unparsable time: ''"),
        ("a", "x" * 99, None, "unparsable time: '" + "x" * 56 + "..."),
        ("a", day, "wrong type: n = 'x' is not a long", "wrong type: n = 'x' is not a long"),
    ]
    keys, times, told, expected = map(list, zip(*rows, strict=True))
    table = pa.table({"k": keys, "t": times, "i": ["1"] * len(rows)})
    checked = check(table, pa.array(told, pa.string()), COLUMNS)
    assert checked.reason.to_pylist() == expected
    assert checked.no_time.tolist() == [time in (None, "", "x", "x" * 99) for time in times]
    assert check(table.slice(0, 1), None, COLUMNS).reason is None


def test_number_as_key_and_id_become_text_and_no_id_is_none() -> None:
    kinds = {"k": pa.int64(), "t": pa.int64()}
    columns = EventColumns("k", "t", "ms", "k", (), kinds)
    checked = check(pa.table({"k": [7], "t": [1]}), None, columns)
    assert (checked.key.to_pylist(), checked.event_id.to_pylist(), checked.time_us.tolist()) == (["7"], ["7"], [1000])
    assert check(pa.table({"k": [7], "t": [1]}), None, EventColumns("k", "t", "ms", None, (), kinds)).event_id is None


def test_number_out_of_range_is_shown_as_text() -> None:
    columns = EventColumns("k", "t", "s", None, (), {"k": pa.string(), "t": pa.int64()})
    checked = check(pa.table({"k": ["a"], "t": [2**62]}), None, columns)
    assert checked.reason.to_pylist() == ["unparsable time: '4611686018427387904'"]


def test_no_rows() -> None:
    checked = check(
        pa.table({"k": pa.nulls(0, pa.string()), "t": pa.nulls(0, pa.string()), "i": pa.nulls(0, pa.string())}),
        None,
        COLUMNS,
    )
    assert (checked.time_us.tolist(), checked.key.to_pylist(), checked.reason) == ([], [], None)


@given(st.lists(st.tuples(st.none() | st.text(), st.none() | st.integers(-9, 9)), min_size=1))
def test_several_fields_make_a_json_array_of_their_texts(rows: list[tuple[str | None, int | None]]) -> None:
    types = {"a": pa.string(), "b": pa.int64(), "time": pa.int64()}
    columns = EventColumns("a", "time", "us", None, (), types, further_keys=("b",))
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows], "time": [0] * len(rows)}, columns.schema)
    checked = check(table, None, columns)
    found = [None if key is None else json.loads(key) for key in checked.key.to_pylist()]
    assert found == [None if None in row else [row[0], str(row[1])] for row in rows]
    reasons = [None] * len(rows) if checked.reason is None else checked.reason.to_pylist()
    assert reasons == ["null key" if None in row else None for row in rows]
