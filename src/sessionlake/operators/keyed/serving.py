"""The rows of a keyed table read from the stores next to the stream: as rows, and as a key-value store."""

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.scalars import from_state, state_type
from sessionlake.config.load import Config
from sessionlake.operators.keyed.section import TableSection
from sessionlake.operators.keyed.table import TABLE
from sessionlake.operators.shared.cleanups.names import LIVE_ROWS
from sessionlake.serve.answer_columns import columns_as_they_are
from sessionlake.serve.decoder import event_types, json_rows, key_texts
from sessionlake.serve.encoded import Times, time_value
from sessionlake.serve.queryable import KeyDecoder
from sessionlake.serve.result_rows import ALL, Packed, ResultRow
from sessionlake.sources.record_columns import meta_of
from sessionlake.store.rows import has_rows, row_of, stored_of
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN
from sessionlake.warehouse.schemas import TIME


class TableDecoder(KeyDecoder):
    """The rows of a keyed table, without markers of deletions and without rows that were written at `hidden_us` or before."""

    store_name, key = "table", TABLE.key

    def __init__(
        self,
        config: Config,
        types: dict[str, pa.DataType],
        hidden_us: int | None = None,
        row_count: int | None = None,
    ) -> None:
        self._hidden_us, self.row_count = hidden_us, row_count
        own = (*config.event.key_columns, config.event.time, *config.event.id_columns)
        section = cast(TableSection, config.section)
        names = section.columns or [name for name in types if name not in (*own, *meta_of(config.source))]
        self._types = {name: types[name] for name in names}
        self._offsets = config.source.has_offsets
        self._ids = config.event.id is not None and not self._offsets
        states = [state_type(type_, name) for name, type_ in self._types.items()]
        self._codec, self._columns = StateCodec((), states), columns_as_they_are(self._types, states)

    @classmethod
    def of(cls, config: Config, commit: BatchCommit) -> Self:
        """Return the decoder of a pipeline as of a batch."""
        return cls(config, event_types(commit), commit.state.get(HIDDEN_WRITTEN), commit.state.get(LIVE_ROWS))

    def has(self, segment: int) -> bool:
        """Say whether it is a segment of rows."""
        return has_rows(segment)

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return rows by key."""
        del include
        owner = np.asarray(packed.owner, np.int64)
        # A key has one row, in any of the segments.
        order = np.argsort(owner)
        stored = stored_of(owner[order], [packed.values[at] for at in order.tolist()])
        if self._hidden_us is not None:
            stored = stored.where(stored["written"] > self._hidden_us)
        every = np.arange(len(stored))
        columns = zip(self._codec.decode(stored.packed(every)), self._types.values(), strict=True)
        places = {f"event_{name}": pa.array(stored[name]) for name in ("partition", "offset")} if self._offsets else {}
        return pa.table(
            {
                TABLE.key: key_texts(packed).take(pa.array(stored.codes)),
                "event_time": pa.array(stored["time"]).cast(TIME),
                **dict(zip(self._types, (from_state(column, type_) for column, type_ in columns), strict=True)),
                "revision": pa.array(stored["revision"]),
                **places,
                **({"event_id": stored.ids(every)} if self._ids else {}),
            }
        )

    def result_rows(self, packed: Packed, include: Collection[str] = ALL) -> list[ResultRow]:
        """Return the same rows, whole."""
        del include
        rows = sorted(zip(packed.owner, packed.values, strict=True), key=itemgetter(0))
        if self._hidden_us is not None:
            rows = [(owner, value) for owner, value in rows if row_of(value).written > self._hidden_us]
        return [ResultRow(packed.keys[owner].decode(), 0, 0, (), value) for owner, value in rows]

    def json_values(self, found: Sequence[ResultRow], times: Times) -> list[dict[str, Any]]:
        """Return rows by the names of the columns, in their order."""
        stored = [row_of(of.packed) for of in found]
        states = [self._codec.decode_one(row.packed) for row in stored]
        columns: dict[str, list[Any]] = {
            TABLE.key: [of.key for of in found],
            "event_time": [time_value(row.time, times) for row in stored],
            **{column.name: column.json_values(states, times) for column in self._columns},
            "revision": [row.revision for row in stored],
        }
        if self._offsets:
            columns["event_partition"] = [row.partition for row in stored]
            columns["event_offset"] = [row.offset for row in stored]
        if self._ids:
            columns["event_id"] = [row.id.decode() for row in stored]
        return json_rows(columns)
