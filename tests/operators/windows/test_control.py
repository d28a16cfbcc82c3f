"""Which tombstones of windows delete a row: against plain Python over the same rows, in any order."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.engine.operator import LOOKUP
from sessionlake.operators.shared.windowing.tombstones import REMOVE, REMOVE_SCHEMA, removed_by
from sessionlake.stream.described import SENT_SCHEMA
from sessionlake.warehouse.schemas import TIME

SIZE, CLOSE = 10, 30
KEYS, STARTS, REVISIONS = st.sampled_from("ab"), st.sampled_from([0, 10, 20, 30]), st.integers(0, 1)
Tombstone = tuple[str, int, int, bool]
CHANGES = pa.schema([("window_key", pa.string()), ("window_start", TIME)])


def table(schema: pa.Schema, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def by_hand(
    named: dict[str, Tombstone], stored: dict[tuple[str, int], int], changing: set[tuple[str, int]]
) -> tuple[set[tuple[str, int]], set[str]]:
    gone: set[tuple[str, int]] = set()
    stale = set()
    for name in sorted(named):
        key, start, revision, forgotten = named[name]
        window = (key, start)
        closed = start + SIZE <= CLOSE
        if stored.get(window) == revision and window not in gone | changing and (closed or forgotten):
            gone.add(window)
        else:
            stale.add(name)
    return gone, stale


@given(
    st.lists(st.tuples(KEYS, STARTS, REVISIONS, st.booleans()), min_size=1, max_size=8),
    st.dictionaries(st.tuples(KEYS, STARTS), REVISIONS),
    st.sets(st.tuples(KEYS, STARTS), max_size=2),
    st.randoms(use_true_random=False),
)
def test_a_tombstone_deletes_the_row_of_a_closed_window_at_its_revision(
    tombstones: list[Tombstone], stored: dict[tuple[str, int], int], changing: set[tuple[str, int]], rng: Any
) -> None:
    named = {f"t{number}": tombstone for number, tombstone in enumerate(tombstones)}
    rows = [(name, *tombstone) for name, tombstone in named.items()]
    rng.shuffle(rows)
    there = table(
        SENT_SCHEMA, [(key, start, start + SIZE, revision, "full") for (key, start), revision in stored.items()]
    )
    changes = table(CHANGES, list(changing))
    inputs = {REMOVE: table(REMOVE_SCHEMA, rows)} | ({LOOKUP: there} if stored else {})
    removed = removed_by(inputs, changes, lambda rows: rows["end_us"].to_numpy() <= CLOSE)
    deleted = removed.rows
    gone, refused = by_hand(named, stored, changing)
    assert {(row["key"], row["start_us"]) for row in deleted.to_pylist()} == gone
    assert deleted.num_rows == len(gone)
    assert all(row["end_us"] == row["start_us"] + SIZE for row in deleted.to_pylist())
    assert removed.stale == refused
