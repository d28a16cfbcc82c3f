"""Groups as the engine's operator. In a batch, tombstones are applied before the pre-aggregated events ("parts"). A key has one record in the store."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import STATE_LAYOUT, StateCodec
from sessionlake.aggregates.partials import values_of, written_values
from sessionlake.columnar.arrays import Ints, combined, is_among
from sessionlake.columnar.records import Records
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult, Split
from sessionlake.operators.groups.mapper import PARTS, parts_schema, split_events
from sessionlake.operators.groups.rules import merge
from sessionlake.operators.groups.table import CHANGED, COUNT, GROUPS, REVISION
from sessionlake.operators.shared.corrections import at_revision
from sessionlake.operators.shared.corrections.outcomes import with_outcomes
from sessionlake.sources.decoding.rows import Rows, TypedSource
from sessionlake.store.api import OpenSegments
from sessionlake.store.files import FileSegments
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.stream.described import AggregatedSpec, Described
from sessionlake.stream.ingest import EVENTS
from sessionlake.warehouse.changelog import STATE
from sessionlake.warehouse.schemas import TIME

if TYPE_CHECKING:
    from sessionlake.config.load import Config
    from sessionlake.stream.pinned import Pinned

SEGMENT, INTERVAL_US = 0, 1
"""All records end at 0, so all are in segment 0. The length of segments is arbitrary."""
_RESTORED_AT_A_TIME = 500_000
"""Rows in a piece of a restore. Any cut is right, since a key has only one row."""


@dataclass(frozen=True)
class Groups(Described):
    """One row a key, over all its events."""

    TABLES: ClassVar = (GROUPS,)
    BOUND: ClassVar = {"state layout": STATE_LAYOUT}
    CORRECTIONS: ClassVar = at_revision.KINDS
    spec: AggregatedSpec

    @classmethod
    def of(cls, config: "Config", sources: Mapping[str, TypedSource], pinned: "Pinned | None") -> Self:
        """Make it of a config."""
        from sessionlake.stream.events import aggregated_events  # noqa: PLC0415 (workers do without the config)

        aggregates, events = aggregated_events(config, sources[EVENTS], pinned)
        return cls(AggregatedSpec(events, aggregates))

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Yield the pieces for a map task's rows: a part for each key."""
        del name, number
        return split_events(self.spec, context, rows)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> SegmentedSessionStore:
        """Open a shard's store. It has records of sessions: `start` is the time of the last change, `end` is 0."""
        return SegmentedSessionStore(path, INTERVAL_US, opened)

    def commit(
        self, store: SegmentedSessionStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext
    ) -> None:
        """Apply writes; nothing expires."""
        del context
        store.apply(writes, meta, SEGMENT)

    def apply(self, inputs: Inputs, store: SegmentedSessionStore, context: BatchContext) -> ShardResult:
        """Compute the shard's changes, store writes and counts."""
        aggregates = self.spec.aggregates
        parts = inputs.get(PARTS, parts_schema(self.spec).empty_table())
        removals = inputs.get(at_revision.REMOVE, at_revision.REMOVE_SCHEMA.empty_table())
        codes, keys = sorted_codes(pa.chunked_array([*parts["key"].chunks, *removals["key"].chunks], pa.string()))
        stored = store.find_many(keys.cast(pa.binary()), np.zeros(len(keys), np.int64)).sessions
        is_removed, stale = at_revision.removed_by(removals, codes[len(parts) :], stored)
        remaining = stored.take(np.flatnonzero(~is_removed))
        states = [combined(column) for column in parts.columns[2:]]  # after key and count
        merged = merge(aggregates, remaining, codes[: len(parts)], parts[COUNT].to_numpy(), states, keys)
        # A row that a tombstone deletes, and that the batch's events make anew, is an upsert.
        removed = stored.codes[is_removed]
        deleted = np.sort(np.concatenate([merged.deleted, removed[~is_among(removed, merged.codes)]]))
        changed, rows = np.concatenate([merged.codes, deleted]), len(merged.codes)
        put = _records(
            merged.codes, np.full(rows, context.clock_us), merged.count, np.full(rows, context.batch_id), merged.packed
        )
        writes = _writes(store, keys, put, deleted)
        new = self.spec.named(written_values(aggregates, merged.states)) | {
            COUNT: pa.array(merged.count),
            STATE: merged.packed,
        }
        schema = self.spec.output_schema(GROUPS)
        upserts = GROUPS.changes(schema, "upsert", keys.take(pa.array(merged.codes)), new, context)
        deletes = GROUPS.changes(schema, "delete", keys.take(pa.array(deleted)), {}, context)
        replaced = None
        if context.keeps_replaced:
            previous = stored.take(np.flatnonzero(is_among(stored.codes, changed)))
            replaced = GROUPS.changes(
                schema, "upsert", keys.take(pa.array(previous.codes)), self._known(previous), None
            )
        stats = {"upserts": rows, "deletes": len(deleted)}
        changes = pa.concat_tables([upserts, deletes])
        result = ShardResult(changes, writes if len(writes) else None, {}, stats, replaced=replaced)
        if not len(removals):
            return result
        return with_outcomes(result, inputs, at_revision.DECIDED, stale, {"applied": len(removed)})

    def restored(self, rows: pa.Table, store: SegmentedSessionStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of a restore's rows, of distinct keys, in pieces."""
        del part
        for first in range(0, len(rows), _RESTORED_AT_A_TIME):
            some = rows.slice(first, _RESTORED_AT_A_TIME).combine_chunks()
            codes, keys = sorted_codes(some["key"])
            changed_us, count, revision = (some[name].to_numpy() for name in ("changed_us", "event_count", "revision"))
            put = _records(codes, changed_us, count, revision, combined(some["state"]))
            yield _writes(store, keys, put, codes[:0])

    def _known(self, was: Records) -> dict[str, pa.Array]:
        """Return the columns of stored rows."""
        aggregates = self.spec.aggregates
        numbers = {
            COUNT: pa.array(was.count),
            REVISION: pa.array(was.revision),
            CHANGED: pa.array(was.start).cast(TIME),
        }
        return numbers | self.spec.named(values_of(aggregates, StateCodec(aggregates).decode(was.state)))


def _records(codes: Ints, changed_us: Ints, count: Ints, revision: Ints, state: pa.Array) -> Records:
    return Records(codes, changed_us, np.full(len(codes), SEGMENT), count, revision, state)


def _writes(store: SegmentedSessionStore, keys: pa.Array, put: Records, deleted: Ints) -> pa.Table:
    """Return the writes that put groups, and delete those of the codes `deleted`."""
    touched = np.concatenate([put.codes, deleted])
    return store.writes(keys, put, touched, np.full(len(touched), SEGMENT))
