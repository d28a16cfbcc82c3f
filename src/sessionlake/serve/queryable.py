"""Read-only stores over a view, as Kafka Streams has them in `QueryableStoreTypes.sessionStore()` and `keyValueStore()`."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from sessionlake.errors import UnsupportedOperationError
from sessionlake.serve.decoder import RowDecoder
from sessionlake.serve.result_rows import Packed, ResultRow, Span
from sessionlake.store.standalone.interface import ReadOnlyKeyValueStore
from sessionlake.store.standalone.key_value import KeyValueStoreOfRows
from sessionlake.store.standalone.keys import LARGEST, LEAST, KeyValueRows, Rows, TimedRows
from sessionlake.store.standalone.serdes import Serde, Serdes

if TYPE_CHECKING:
    from sessionlake.serve.replica import View

Row = dict[str, Any]


class ReadOnlyRows(Rows):
    """Rows of a view, from local shards only: NotLocalError for others. Only commits write them."""

    persistent = True

    def __init__(self, view: "View") -> None:
        self._view = view

    def _items(
        self,
        numbers: Iterable[int],
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001 - as in the protocols
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys from low to high, both inclusive, with their values in some segments of all shards."""
        shards = self._view.segments()
        each = [shard.items(number, low, high, backward=backward) for number in numbers for shard in shards]
        return heapq.merge(*each, key=itemgetter(0), reverse=backward)

    def _numbers(self) -> list[int]:
        """Return the segments that any of the shards has rows in, ascending."""
        found = set(chain.from_iterable(shard.segments for shard in self._view.segments()))
        return sorted(filter(self._view.decoder.has, found))

    def _found(self, key: bytes, value: bytes) -> list[ResultRow]:
        return self._view.row_decoder.result_rows(Packed([key], [0], [value]))

    def restore(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Refuse: a commit does that."""
        raise _refused("restore")

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ReadOnlyTimedRows(ReadOnlyRows, TimedRows):
    """The same for rows that have times."""

    dropped = 0

    def put(self, key: bytes, time: int, rank: int | None, value: bytes) -> int | None:
        """Refuse: a commit does that."""
        raise _refused("put")

    def delete(self, key: bytes, time: int, rank: int) -> None:
        """Refuse: a commit does that."""
        raise _refused("remove")

    def is_empty(self) -> bool:
        """Say whether nothing is stored."""
        return next(self.find(None, None, LEAST, LARGEST, backward=False), None) is None


class RowsByKey(ReadOnlyRows, KeyValueRows):
    """A `KeyDecoder`'s rows, from all segments."""

    def __init__(self, view: "View", row_count: int | None) -> None:
        super().__init__(view)
        self._row_count = row_count

    def get(self, key: bytes) -> bytes | None:
        """Return a key's row; None if there is none."""
        found = self._view.row_decoder.result_rows(self._view.packed([key.decode()]))
        return pack_row(found[0]) if found else None

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys with rows, from low up to high, exclusive."""
        for key, value in self._items(self._numbers(), low, high, backward):
            if key != high and (found := self._found(key, value)):
                yield key, pack_row(found[0])

    def count(self) -> int:
        """Return how many rows there are."""
        if self._row_count is not None:
            return self._row_count
        return sum(len(self._found(*item)) for item in self._items(self._numbers(), None, None, backward=False))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Refuse: a commit does that."""
        raise _refused("put")

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Refuse: a commit does that."""
        raise _refused("put_all")


class KeyDecoder(RowDecoder):
    """A decoder of stores with one row for a key, which are read as a key-value store."""

    store_type = "key_value_store"
    store_name: ClassVar[str]
    key: ClassVar[str]
    """The key's column."""
    row_count: int | None = None
    """The number of rows; None if it is not kept."""

    def open_store(self, view: "View") -> ReadOnlyKeyValueStore[str, Row]:
        """Return the rows as a key-value store."""
        values = RowSerde(view, unpack_row, hidden=(self.key,))
        return KeyValueStoreOfRows(self.store_name, RowsByKey(view, self.row_count), Serdes.string(), values)

    def size(self, value: bytes) -> int:
        """Return one."""
        del value
        return 1

    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[ResultRow], int, int | None]:
        """Return a key's row."""
        del span
        return self.result_rows(packed, include), len(packed.values), None


class RowSerde(Serde[Row]):
    """Decodes a row into a dictionary by column, without the columns of the key; times in microseconds."""

    def __init__(self, view: "View", found: Callable[[bytes], ResultRow], hidden: Collection[str]) -> None:
        self._json_values, self._found, self._hidden = view.decoder.json_values, found, hidden

    def serialize(self, value: Row) -> bytes:
        """Refuse: a commit does that."""
        raise _refused("put")

    def deserialize(self, data: bytes) -> Row:
        """Return the row that `found` makes of bytes."""
        [row] = self._json_values([self._found(data)], "us")
        return {name: value for name, value in row.items() if name not in self._hidden}


def pack_row(found: ResultRow) -> bytes:
    """Return a row's head and state as one value, which `unpack_row` reads."""
    return bytes([len(found.head)]) + Struct(f"<{len(found.head)}q").pack(*found.head) + found.packed


def unpack_row(data: bytes) -> ResultRow:
    """Return the row of `pack_row`, without its key."""
    head = Struct(f"<{data[0]}q")
    fields = head.unpack_from(data, 1)
    start, end = fields[:2] or (0, 0)
    return ResultRow("", start, end, fields, data[1 + head.size :])


def _refused(call: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(f"store: {call}() is not for a pipeline's own; send it events or a correction")
