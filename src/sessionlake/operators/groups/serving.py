"""Groups read from the stores next to the stream: as rows, and as a key-value store."""

from collections.abc import Collection, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.config.load import Config
from sessionlake.operators.groups.operator import SEGMENT
from sessionlake.operators.groups.table import CHANGED, COUNT, KEY, REVISION
from sessionlake.serve.answer_columns import columns_of
from sessionlake.serve.decoder import event_types, json_rows, key_texts
from sessionlake.serve.encoded import Times, time_value
from sessionlake.serve.queryable import KeyDecoder
from sessionlake.serve.result_rows import ALL, Packed, ResultRow
from sessionlake.store.layout import sessions_of, unpack
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.schemas import TIME


class GroupDecoder(KeyDecoder):
    """All groups."""

    store_name, key = "groups", KEY

    def __init__(self, config: Config, commit: BatchCommit) -> None:
        pinned = Pinned.of_settings(commit.settings, commit.batch_id)
        self._aggregates = pinned.built(config, event_types(commit))
        self._codec, self._columns = StateCodec(self._aggregates), columns_of(self._aggregates)

    def has(self, segment: int) -> bool:
        """Say whether it is the segment of groups."""
        return segment == SEGMENT

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return groups by key."""
        del include
        found = unpack(pa.array(packed.values, pa.binary()))
        owner = np.asarray(packed.owner, np.int64)[found.codes]
        order = np.argsort(owner)  # a key has one group
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

    def result_rows(self, packed: Packed, include: Collection[str] = ALL) -> list[ResultRow]:
        """Return the same groups, their states packed."""
        del include
        found = []
        for owner, value in sorted(zip(packed.owner, packed.values, strict=True), key=itemgetter(0)):
            [(head, state)] = sessions_of(value, with_until=False)
            found.append(ResultRow(packed.keys[owner].decode(), head[0], head[0], head, state))
        return found

    def json_values(self, found: Sequence[ResultRow], times: Times) -> list[dict[str, Any]]:
        """Return groups by the names of the columns, in their order."""
        if not found:
            return []
        states = [self._codec.decode_one(of.packed) for of in found]
        changed, _, counts, revisions = zip(*(of.head for of in found), strict=True)
        columns: dict[str, Any] = {
            KEY: [of.key for of in found],
            CHANGED: [time_value(time, times) for time in changed],
            COUNT: counts,
            REVISION: revisions,
            **{column.name: column.json_values(states, times) for column in self._columns},
        }
        return json_rows(columns)
