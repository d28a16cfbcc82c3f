"""Groups read from the stores next to the stream: as rows, and as a key-value store."""

from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.config.load import Config
from sessionlake.operators.groups.operator import SEGMENT
from sessionlake.operators.groups.table import CHANGED, COUNT, KEY, REVISION
from sessionlake.serve.answer_columns import columns_of
from sessionlake.serve.decoder import RowDecoder, event_types, key_texts
from sessionlake.serve.encoded import Times, time_value
from sessionlake.serve.queryable import ReadOnlyKeyValueRows, Row, RowSerde, pack_row, unpack_row
from sessionlake.serve.result_rows import ALL, Packed, ResultRow, Span
from sessionlake.store.layout import count_of, sessions_of, unpack
from sessionlake.store.standalone.interface import ReadOnlyKeyValueStore
from sessionlake.store.standalone.key_value import KeyValueStoreOfRows
from sessionlake.store.standalone.serdes import Serdes
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.schemas import TIME

if TYPE_CHECKING:
    from sessionlake.serve.replica import View


class GroupDecoder(RowDecoder):
    """All groups."""

    store_type = "key_value_store"

    def __init__(self, config: Config, commit: BatchCommit) -> None:
        pinned = Pinned.of_settings(commit.settings, commit.batch_id)
        self._aggregates = pinned.built(config, event_types(commit))
        self._codec, self._columns = StateCodec(self._aggregates), columns_of(self._aggregates)

    @classmethod
    def of(cls, config: Config, commit: BatchCommit) -> Self:
        """Return the decoder of a pipeline as of a batch."""
        return cls(config, commit)

    def open_store(self, view: "View") -> ReadOnlyKeyValueStore[str, Row]:
        """Return the groups as a key-value store."""
        serde = RowSerde(view, unpack_row, hidden=(KEY,))
        return KeyValueStoreOfRows("groups", _Groups(view), Serdes.string(), serde)

    def has(self, segment: int) -> bool:
        """Say whether it is the segment of groups."""
        return segment == SEGMENT

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return groups by key."""
        del include
        found = unpack(pa.array(packed.values, pa.binary()))
        owner = np.asarray(packed.owner, np.int64)[found.codes]
        order = np.argsort(owner)
        found = found.take(order)
        values = values_of(self._aggregates, self._codec.decode(found.state))
        columns = {
            KEY: key_texts(packed).take(pa.array(owner[order])),
            CHANGED: pa.array(found.start).cast(TIME),
            COUNT: pa.array(found.count),
            REVISION: pa.array(found.revision),
            **{aggregate.name: column for aggregate, column in zip(self._aggregates, values, strict=True)},
        }
        return pa.table(columns)

    def size(self, value: bytes) -> int:
        """Return one."""
        return count_of(value)

    def result_rows(self, packed: Packed, include: Collection[str] = ALL) -> list[ResultRow]:
        """Return the same groups, their states packed."""
        del include
        found = []
        for owner, value in sorted(zip(packed.owner, packed.values, strict=True), key=itemgetter(0)):
            [(head, state)] = sessions_of(value, with_until=False)
            found.append(ResultRow(packed.keys[owner].decode(), head[0], head[0], head, state))
        return found

    def page(self, packed: Packed, include: Collection[str], span: Span) -> tuple[list[ResultRow], int, int | None]:
        """Return the group of one key."""
        del span
        return self.result_rows(packed, include), len(packed.values), None

    def json_values(self, found: Sequence[ResultRow], times: Times) -> list[dict[str, Any]]:
        """Return groups by the names of the columns, in their order."""
        if not found:
            return []
        states = [self._codec.decode_one(of.packed) for of in found]
        changed, _, counts, revisions = zip(*(of.head for of in found), strict=True)
        columns = {
            KEY: [of.key for of in found],
            CHANGED: [time_value(time, times) for time in changed],
            COUNT: counts,
            REVISION: revisions,
            **{column.name: column.json_values(states, times) for column in self._columns},
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


class _Groups(ReadOnlyKeyValueRows):
    """Groups by key."""

    def get(self, key: bytes) -> bytes | None:
        found = self._view.row_decoder.result_rows(self._view.packed([key.decode()]))
        return pack_row(found[0]) if found else None

    def find(
        self,
        low: bytes | None,
        high: bytes | None,
        backward: bool,  # noqa: FBT001
    ) -> Iterator[tuple[bytes, bytes]]:
        for key, value in self._items(self._numbers(), low, high, backward):
            if key != high:
                yield key, pack_row(self._found(key, value)[0])

    def count(self) -> int:
        return sum(1 for _ in self._items(self._numbers(), None, None, backward=False))
