"""What a batch has just written is not read back from the database, and all that is found is as if it were."""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.records import Records
from sessionlake.store.files import FileSegments
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
def test_found_as_in_a_store_that_was_just_opened(batches: list[Any]) -> None:
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


def test_only_other_keys_are_asked_of_the_database(tmp_path: Path) -> None:
    store = SegmentedSessionStore(tmp_path / "db", INTERVAL)
    write(store, {(key, 10) for key in KEYS}, set())
    write(store, {(key, 20) for key in KEYS[:6]}, {(KEYS[6], 0)})
    with patch.object(FileSegments, "find", autospec=True, side_effect=FileSegments.find) as find:
        assert found(store, KEYS, 0) == expected({(KEYS[7], 10), *((key, 20) for key in KEYS[:6])}, KEYS, 0)
    assert [(number, keys.to_pylist()) for _, number, keys in (call.args for call in find.call_args_list)] == [
        (0, [KEYS[7].encode()])
    ]
    store.clear()
    assert found(store, KEYS, 0) == set()
    store.close()
