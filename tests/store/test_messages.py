"""The store of a join's messages beside a plain list: what is around places, after any writes, drops and reopenings."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.texts import sorted_codes
from sessionlake.store.files import FileSegments
from sessionlake.store.messages import HEAD, ListedMessages, Messages, MessageStore, together
from tests.support import examples

BLOCK, SEGMENT = 10, 35
"""A segment holds whole blocks: four of them."""
Row = tuple[str, str, int, int, bytes]
"""Side, key, place, position, columns."""
# Keys of which one is another with more behind it: a block's key must not be mistaken for another key's.
ROWS = st.lists(
    st.tuples(
        st.sampled_from("lr"),
        st.sampled_from(["", "a", "al", "é", "a\0"]),
        st.integers(-90, 90),
        st.integers(0, 5),
        st.binary(max_size=3),
    ),
    max_size=12,
    unique_by=lambda row: row[:4],
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    made = MessageStore(tmp_path / "0", block=BLOCK, segment=SEGMENT)
    yield made
    made.close()


def messages(rows: list[Row]) -> tuple[pa.Array, Messages]:
    codes, keys = sorted_codes(pa.array([key for _, key, *_ in rows], pa.string()))
    head = np.zeros(len(rows), HEAD)
    head["x"], head["position"] = [row[2] for row in rows], [row[3] for row in rows]
    return keys, together([Messages(codes, head, pa.array([row[4] for row in rows], pa.binary()))])


def write(store: MessageStore, rows: list[Row], oldest: int) -> None:
    """Make the rows, all that there are, the content of their blocks."""
    tables = []
    for side in "lr":
        keys, of_side = messages([row for row in rows if row[0] == side])
        tables.append(store.writes(side, keys, of_side))
    table = pa.concat_tables(tables)
    order = np.argsort(table["segment"].to_numpy(), kind="stable")
    store.apply(table.take(pa.array(order)), {"commit_id": b"c"}, oldest)


def plain(keys: pa.Array | list[bytes], found: Messages, side: str) -> list[Row]:
    names = [
        key if isinstance(key, str) else key.decode() for key in (keys if isinstance(keys, list) else keys.to_pylist())
    ]
    columns = found.codes.tolist(), found["x"].tolist(), found["position"].tolist(), found.columns.to_pylist()
    return [(side, names[code], x, position, text) for code, x, position, text in zip(*columns, strict=True)]


@examples(60)
@given(
    batches=st.lists(st.tuples(ROWS, st.integers(-90, 60)), max_size=4),
    asked=st.integers(-99, 99),
    width=st.integers(0, 40),
    indexed_from=st.integers(0, 5),
)
def test_what_is_around_and_in_ranges_is_a_plain_lists(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[Row], int]],
    asked: int,
    width: int,
    indexed_from: int,
) -> None:
    """From some opening on the store has an index by place, which takes in what was written without one."""
    path, oldest, every = tmp_path_factory.mktemp("store") / "0", -1000, dict[tuple[object, ...], Row]()
    for number, (rows, at) in enumerate(batches):
        opened = MessageStore(path, block=BLOCK, segment=SEGMENT)
        if number >= indexed_from:
            opened.index()
        oldest = max(oldest, at)
        every |= {row[:4]: row for row in rows}
        kept = [row for row in every.values() if row[2] >= oldest]
        write(opened, kept, oldest)
        opened.close()
    opened = MessageStore(path, block=BLOCK, segment=SEGMENT)
    if len(batches) >= indexed_from:
        opened.index()
    kept = sorted(row for row in every.values() if row[2] >= oldest)
    names = sorted({row[1] for row in kept}) or ["a"]
    codes = np.arange(len(names))
    for side in "lr":
        low, high = np.full(len(names), asked), np.full(len(names), asked + width)
        around = plain(pa.array(names), opened.around(side, pa.array(names), codes, low, high), side)
        expected = [row for row in kept if row[0] == side and asked <= row[2] <= asked + width]
        assert [row for row in around if asked <= row[2] <= asked + width and row[2] >= oldest] == expected
        assert all(asked - BLOCK < row[2] < asked + width + BLOCK for row in around)
        keys, scanned = opened.scan(side, max(asked, oldest), asked + width)
        assert sorted(plain(keys, scanned, side)) == expected
        for name in ("", "a", "al", "b"):
            keys, scanned = opened.scan(side, max(asked, oldest), asked + width, name.encode())
            assert plain(keys, scanned, side) == [row for row in expected if row[1] == name]
    opened.close()


class Counting(FileSegments):
    """Counts the entries that are read."""

    read = 0

    def get(self, segment: int, keys: list[bytes]) -> list[bytes | None]:
        self.read += len(keys)
        return super().get(segment, keys)

    def items(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        found = super().items(segment, low, high, limit)
        self.read += len(found)
        return found


def test_a_range_costs_the_blocks_it_lies_in_and_not_the_store(tmp_path: Path) -> None:
    """Of 40 keys with a message in each of 100 blocks: what is read of one, or of all, in a range of two blocks."""
    opened: list[Counting] = []

    def counting(path: Path) -> Counting:
        opened.append(Counting(path))
        return opened[0]

    store = MessageStore(tmp_path / "0", block=BLOCK, segment=1000, opened=counting)
    store.index()
    write(store, [("l", f"k{key}", place * BLOCK, 1, b"") for key in range(40) for place in range(100)], -100)
    costs = []
    for key in (b"k7", None):
        before = opened[0].read
        assert len(store.scan("l", 500, 519, key)[1]) == (2 if key else 80)
        costs.append(opened[0].read - before)
    # Of all keys each block is read once in the index and once itself.
    assert costs == [2, 160]
    store.close()


def test_a_block_that_several_stretches_touch_comes_once(store: MessageStore) -> None:
    rows: list[Row] = [("l", "a", 3, 1, b"x"), ("l", "a", 3, 2, b""), ("l", "a", 12, 3, b"y")]
    write(store, rows, -100)
    keys, codes = pa.array(["a"]), np.zeros(3, np.int64)
    found = store.around("l", keys, codes, np.array([0, 5, 11]), np.array([2, 19, 11]))
    assert plain(keys, found, "l") == rows
    assert len(store.around("r", keys, codes, np.array([0, 5, 11]), np.array([2, 19, 11]))) == 0
    assert len(store.around("l", keys, codes[:1], np.array([15]), np.array([4]))) == 0


def test_what_is_older_goes_by_whole_segments(store: MessageStore) -> None:
    write(store, [("l", "a", 39, 1, b""), ("l", "a", 40, 2, b"")], 0)
    for oldest, expected in ((39, [39, 40]), (40, [40]), (79, [40]), (80, [])):
        store.apply(store.list_deletes([]), {}, oldest)
        assert store.scan("l", -100, 100)[1]["x"].tolist() == expected


def test_lists_are_of_their_letter_stay_when_segments_go_and_end_when_deleted(store: MessageStore) -> None:
    def waiting(*keys: str) -> ListedMessages:
        return ListedMessages(
            pa.array(["left"] * len(keys), pa.string()), np.arange(len(keys)), pa.array(keys, pa.string())
        )

    for letter, number, keys in ((b"E", 3, ["a", "b"]), (b"E", 4, ["c"]), (b"L", 3, ["d"]), (b"L", 5, [])):
        store.apply(store.list_writes(letter, number, waiting(*keys)), {}, 1 << 40)
    names, found = store.lists(b"E")
    assert (found.keys.to_pylist(), found.x.tolist(), found.sides.to_pylist()) == (
        ["a", "b", "c"],
        [0, 1, 0],
        ["left"] * 3,
    )
    store.apply(store.list_deletes(names), {}, 1 << 40)
    assert (store.lists(b"E")[0], len(store.lists(b"E")[1].x)) == ([], 0)
    assert store.lists(b"L")[1].keys.to_pylist() == ["d"]
    assert store.scan("l", -100, 100)[0] == []


def test_metadata_stays_and_clear_removes_all(store: MessageStore) -> None:
    write(store, [("r", "a", 0, 1, b"")], -100)
    assert store.meta("commit_id") == b"c"
    store.clear()
    assert store.meta("commit_id") is None
    assert len(store.scan("r", -100, 100)[1]) == 0
