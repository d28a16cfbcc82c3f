"""The steps of a table's shard, as functions of small columns."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.columnar.arrays import Bools, Ints
from sessionlake.engine.operator import BatchContext
from sessionlake.operators.keyed.control import REMOVE_SCHEMA
from sessionlake.operators.keyed.order import Versions
from sessionlake.operators.keyed.plan import TombstoneMatches, against_stored, inserted_since, matched
from sessionlake.operators.keyed.shard import _by_segment
from sessionlake.store.rows import HEAD, Stored

NONE = TombstoneMatches(np.zeros(0, bool), frozenset())
CONTEXT = BatchContext(7, "c7", {}, 1_000)


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def bools(*values: bool) -> Bools:
    return np.array(values, bool)


def stored(*rows: tuple[int, int], **columns: Sequence[int]) -> Stored:
    """Return rows of (code, time), each with an empty id and the packed column x."""
    head = np.zeros(len(rows), HEAD)
    head["time"] = [time for _, time in rows]
    for name, values in columns.items():
        head[name] = values
    values = pa.array([one.tobytes() + b"x" for one in head], pa.binary())
    return Stored(ints(*(code for code, _ in rows)), head, values)


def versions(*times: int, packed: bytes = b"x") -> Versions:
    n = len(times)
    texts = pa.array([""] * n)
    return Versions(
        ints(*times),
        np.zeros(n, np.int64),
        np.zeros(n, bool),
        lambda at: texts.take(pa.array(at)),
        lambda at: pa.array([packed] * len(at), pa.binary()),
    )


def removals(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{"key": "k", "start_us": 0, **row} for row in rows], schema=REMOVE_SCHEMA)


@pytest.mark.parametrize(
    ("time", "packed", "outcome"), [(11, b"x", 1), (10, b"x", 0), (9, b"x", -1), (10, b"y", 1), (10, b"w", -1)]
)
def test_an_update_is_held_against_the_stored_row(time: int, packed: bytes, outcome: int) -> None:
    removed = TombstoneMatches(bools(False), frozenset())
    found = against_stored(ints(3), versions(time, packed=packed), stored((3, 10)), stored(), removed, by_offset=False)
    assert found.tolist() == [outcome]


def test_an_update_of_an_absent_key_wins() -> None:
    removed = TombstoneMatches(bools(False), frozenset())
    found = against_stored(ints(1, 4), versions(0, 0), stored((3, 10)), stored(), removed, by_offset=False)
    assert found.tolist() == [1, 1]


def test_an_update_that_is_older_than_a_deletion_is_superseded() -> None:
    assert against_stored(ints(3), versions(9), stored(), stored((3, 10)), NONE, by_offset=False).tolist() == [-1]
    assert against_stored(ints(3), versions(11), stored(), stored((3, 10)), NONE, by_offset=False).tolist() == [1]


def test_a_key_keeps_the_time_at_which_it_got_a_row() -> None:
    rows = stored((0, 10), (2, 10), inserted=[50, 60])
    found = inserted_since(ints(2, 1, 0), rows, TombstoneMatches(bools(True, False), frozenset()), CONTEXT)
    assert found.tolist() == [60, 1_000, 1_000]


def test_a_tombstone_deletes_a_row_at_its_revision_only() -> None:
    rows = stored((0, 10), (1, 10), revision=[5, 6])
    named = removals({"correction_id": "a", "revision": 5}, {"correction_id": "b", "revision": 5})
    found = matched(named, ints(0, 1), rows)
    assert found.rows.tolist() == [True, False]
    assert found.stale == {"b"}


def test_of_two_tombstones_of_a_row_the_lower_id_holds_in_any_order() -> None:
    rows = stored((0, 10), revision=[5])
    named = removals({"correction_id": "b", "revision": 5}, {"correction_id": "a", "revision": 5})
    found = matched(named, ints(0, 0), rows)
    assert found.rows.tolist() == [True]
    assert found.stale == {"b"}


def test_an_expiry_is_stale_only_if_its_key_has_another_row() -> None:
    rows = stored((0, 10), (1, 10), offset=[8, 9], partition=[0, 0])
    expiries = [{"correction_id": name, "offset": 8, "partition": 0} for name in ("a", "b", "c")]
    found = matched(removals(*expiries), ints(0, 1, 2), rows)
    assert found.rows.tolist() == [True, False]
    assert found.stale == {"b"}


def test_writes_ascend_by_segment() -> None:
    tables = [pa.table({"segment": pa.array(segments, pa.int64())}) for segments in ([], [1, 3], [2])]
    assert _by_segment(tables)["segment"].to_pylist() == [1, 2, 3]
    assert _by_segment(tables[:1]).num_rows == 0
