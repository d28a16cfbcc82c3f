"""Read-only stores over a view, as Kafka Streams has them in `QueryableStoreTypes.sessionStore()` and `keyValueStore()`."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any

from sessionlake.errors import UnsupportedOperationError
from sessionlake.serve.result_rows import Packed, ResultRow
from sessionlake.store.standalone.keys import LARGEST, LEAST, KeyValueRows, Rows, TimedRows
from sessionlake.store.standalone.serdes import Serde

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


class ReadOnlyKeyValueRows(ReadOnlyRows, KeyValueRows):
    """The same for rows by key only."""

    def put(self, key: bytes, value: bytes | None) -> None:
        """Refuse: a commit does that."""
        raise _refused("put")

    def put_all(self, entries: list[tuple[bytes, bytes | None]]) -> None:
        """Refuse: a commit does that."""
        raise _refused("put_all")


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
    return ResultRow("", fields[0], fields[1], fields, data[1 + head.size :])


def _refused(call: str) -> UnsupportedOperationError:
    return UnsupportedOperationError(f"store: {call}() is not for a pipeline's own; send it events or a correction")
