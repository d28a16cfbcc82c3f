"""Sessions that are found, batch after batch, are those of a model."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.records import Records
from sessionlake.store.segmented import SegmentedSessionStore
from tests.support import examples

INTERVAL = 100
KEYS = [f"key-{i}" for i in range(8)]
Row = tuple[str, int]


def write(store: SegmentedSessionStore, rows: set[Row], emptied: set[Row], oldest: int = -(10**6)) -> None:
    """Make a session of each (key, end) the whole content of its key and segment; of the emptied ones nothing is left."""
    kept = sorted(rows)
    owner, end = (np.array([place(row)[i] for row in kept], np.int64) for i in (0, 1))
    touched = np.array([place(row) for row in [*kept, *sorted(emptied)]], np.int64).reshape(-1, 2)
    state = pa.array([f"{key} {end}".encode() for key, end in kept], pa.binary())
    sessions = Records(owner, end, end, end, end, state)
    store.apply(store.writes(pa.array(KEYS), sessions, touched[:, 0], touched[:, 1] // INTERVAL), {}, oldest)


def place(row: Row) -> tuple[int, int]:
    return KEYS.index(row[0]), row[1]


def found(store: SegmentedSessionStore, keys: list[str], earliest: int) -> set[tuple[str, int, bytes]]:
    wanted = sorted(keys)
    many = store.find_many(pa.array([key.encode() for key in wanted], pa.binary()), np.full(len(wanted), earliest))
    columns = (many.sessions.codes.tolist(), many.sessions.end.tolist(), many.sessions.state.to_pylist())
    assert (many.segment == many.sessions.end // INTERVAL).all()
    rows = [(wanted[owner], end, state) for owner, end, state in zip(*columns, strict=True)]
    assert len(set(rows)) == len(rows)
    return set(rows)


def expected(model: set[Row], keys: list[str], earliest: int) -> set[tuple[str, int, bytes]]:
    first = earliest // INTERVAL
    return {(key, end, f"{key} {end}".encode()) for key, end in model if key in keys and end // INTERVAL >= first}


rows = st.sets(st.tuples(st.sampled_from(KEYS), st.integers(0, 299)))
some_keys = st.lists(st.sampled_from(KEYS), unique=True, min_size=1)


@examples(60)
@given(st.lists(st.tuples(rows, rows, st.integers(0, 250), some_keys, st.integers(0, 299)), min_size=1, max_size=5))
def test_found_as_in_the_model(batches: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store, model = SegmentedSessionStore(Path(directory, "db"), INTERVAL), set()
        for put, emptied, oldest, keys, earliest in batches:
            touched = {(key, end // INTERVAL) for key, end in put | emptied}
            write(store, put, emptied, oldest)
            model = {row for row in model if (row[0], row[1] // INTERVAL) not in touched} | put
            model = {row for row in model if row[1] // INTERVAL >= oldest // INTERVAL}
            for some in (keys, KEYS):
                assert found(store, some, earliest) == expected(model, some, earliest)
        store.close()
