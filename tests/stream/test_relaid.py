"""Corrections and stored rows of several layouts, and what a pipeline's batches have fixed; without Spark."""

from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.layouts import Added, Layout, Layouts
from sessionlake.operators.sessions.marks import Marks, split_marks, with_marks
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.relaid import newest_corrections, newest_rows
from sessionlake.warehouse import schemas
from tests.operator_forms import FORMS

(N,) = build_aggregates({"n": "count()"}, {})
M = Added(build_aggregates({"m": "count()"}, {})[0])
FIRST, SECOND = Layout.of(0, {"n": "count()"}, [N]), Layout.of(5, {"n": "count()", "m": "count()"}, [N, M])
LAYOUTS = Layouts((FIRST, SECOND), (N, M))


def old(n: int) -> bytes:
    return StateCodec([N]).encode([pa.array([n])], 1)[0].as_py()  # type: ignore[no-any-return]


def new(n: int, m: int) -> bytes:
    return StateCodec([N, M]).encode([pa.array([n]), pa.array([m]), pa.array([0])], 1)[0].as_py()  # type: ignore[no-any-return]


def read(state: bytes | None) -> list[Any] | None:
    return None if state is None else StateCodec([N, M]).decode_one(state)


def test_corrections_are_read_by_their_layout() -> None:
    put = {"start_time": 1, "end_time": 2, "event_count": 1}
    rows = [
        {"kind": "restate", "state": old(3), "layout": None, "put": None},
        {"kind": "replace", "state": None, "layout": 1, "put": [{**put, "state": new(4, 5)}]},
        {"kind": "tombstone", "state": None, "layout": None, "put": []},
        {"kind": "replace", "state": None, "layout": 0, "put": [{**put, "state": old(6)}, {**put, "state": old(7)}]},
        {"kind": "restate", "state": new(8, 9), "layout": 1, "put": None},
        {"kind": "restate", "state": new(8, 9), "layout": 2, "put": None},
    ]
    table = pa.Table.from_pylist(rows, schema=schemas.corrections(layout=True))
    found = newest_corrections(LAYOUTS, table)
    assert found.schema == table.schema
    assert [read(state) for state in found["state"].to_pylist()] == [[3, None, 1], None, None, None, [8, 9, 0], None]
    puts = found["put"].to_pylist()
    assert [None if some is None else [read(p["state"]) for p in some] for some in puts] == [
        None,
        [[4, 5, 0]],
        [],
        [[6, None, 1], [7, None, 1]],
        None,
        None,
    ]
    # Before the second layout there is no such column.
    first = newest_corrections(LAYOUTS, table.slice(0, 1).drop_columns(["layout"]))
    assert read(first["state"][0].as_py()) == [3, None, 1]


def test_stored_rows_are_read_by_their_revision_and_keep_their_marks(tmp_path: Any) -> None:
    marks = Marks(np.array([7, 8]), np.array([2, 0]), np.array([3, 5]))
    states = with_marks(marks, pa.array([old(3), new(4, 5)]))
    rows = pa.table({"revision": [4, 5], "state": states})
    config = FORMS["session by policy"](tmp_path / "lake", tmp_path / "events").config
    from sessionlake.local.source import local_operator

    operator = local_operator(config, {"events": {"v": pa.int64(), "tag": pa.string()}})
    assert isinstance(operator, Sessionizer)
    found, unmarked = split_marks(newest_rows(operator, LAYOUTS, rows)["state"].combine_chunks())
    assert (found.reach.tolist(), found.shown.tolist()) == ([7, 8], [3, 5])
    assert [read(state) for state in unmarked.to_pylist()] == [[3, None, 1], [4, 5, 0]]


def test_a_column_is_known_since_it_is_read_without_a_gap() -> None:
    texts = [{"n": "count()"}, {"n": "count()", "m": "max(b)"}, {"n": "count()"}, {"n": "count()", "m": "max(b)"}]
    columns = [["a"], ["a", "b"], ["a"], ["a", "b"]]
    layouts = tuple(Layout(since, of, {}, read) for since, of, read in zip((0, 3, 5, 9), texts, columns, strict=True))
    pinned = Pinned({}, texts[-1], layouts, 12)
    assert [pinned.since(names) for names in ([], ["a"], ["b"], ["a", "b"], ["c"])] == [0, 0, 9, 9, 12]
    assert [pinned.is_added(name) for name in ("n", "m", "x")] == [False, True, True]
    assert list(pinned.ordered({"x": "count()", "m": "max(b)", "n": "count()"})) == ["n", "m", "x"]
