"""One shard's part of a batch of sessions that are sent by policy: what is stored, and what is sent of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import States
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import written_values
from sessionlake.columnar.arrays import concatenated
from sessionlake.columnar.records import Records, concat
from sessionlake.engine.operator import BatchContext, Inputs
from sessionlake.operators.sessions.arrivals import Parts
from sessionlake.operators.sessions.marks import Marks, split_marks, with_marks
from sessionlake.operators.sessions.rows import deleted_rows, session_rows, stored_deletes, stored_rows
from sessionlake.operators.sessions.rules import Verdict
from sessionlake.operators.sessions.sending import Due, Sending, due_sessions, sending
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import CHANGED
from sessionlake.operators.shared.windowing.batch_times import BatchTimes, batch_times
from sessionlake.operators.shared.windowing.emission import MAX_BATCH, MAX_CLOCK
from sessionlake.operators.shared.windowing.policies import Policies
from sessionlake.store.lists import ListedSessionStore
from sessionlake.store.segmented import SegmentedSessionStore


@dataclass(frozen=True)
class SentByPolicy:
    """The outputs of a shard, and the verdict with states as the store has them."""

    changes: pa.Table
    """Rows of session_changelog."""
    stored: pa.Table
    """Rows of stored_session_changelog."""
    verdict: Verdict
    lists: Sequence[pa.Table]
    stats: Mapping[str, int]


@dataclass(frozen=True)
class ByPolicy:
    """Sends a shard's sessions in one batch."""

    spec: SessionizerSpec
    emit: Policies
    context: BatchContext
    store: ListedSessionStore
    times: BatchTimes
    due: Due
    """Keys that may have sessions which are due."""

    @classmethod
    def of(
        cls,
        spec: SessionizerSpec,
        emit: Policies,
        inputs: Inputs,
        store: SegmentedSessionStore,
        context: BatchContext,
    ) -> "ByPolicy":
        """Begin a batch: only the store's lists are read."""
        listed = cast("ListedSessionStore", store)
        times = batch_times(emit, spec.windows.grace_us, spec.windows.kept_us, inputs, context)
        return cls(spec, emit, context, listed, times, due_sessions(emit, listed, times))

    def sent(self, parts: Parts, stored: Records, marks: Marks, verdict: Verdict) -> SentByPolicy:
        """Return the outputs, given the stored sessions without their marks, and what becomes of them."""
        spec, keys, context = self.spec, parts.keys, self.context
        found = sending(
            spec.windows, self.emit, keys, stored, marks, verdict, self.due, parts.due, self.times, self.store
        )
        marked = replace(verdict.changed, state=with_marks(found.marks, verdict.changed.state))
        gone = stored.take(verdict.deleted)
        deletes = [stored_deletes(spec, keys, gone, context.batch_id)] if len(gone) else []
        changes = [self._sent_rows(keys, stored, verdict, found)]
        if len(found.deleted):
            changes.append(deleted_rows(spec, keys, found.deleted, context))
        return SentByPolicy(
            pa.concat_tables(changes),
            pa.concat_tables([stored_rows(spec, "upsert", keys, marked), *deletes]),
            replace(verdict, changed=marked),
            found.lists,
            {
                "upserts": len(found.rows),
                "deletes": len(found.deleted),
                CHANGED: len(verdict.changed),
                MAX_CLOCK: self.times.clock_us,
                MAX_BATCH: self.times.batch_id,
                **found.unsent,
            },
        )

    def _sent_rows(self, keys: pa.Array, stored: Records, verdict: Verdict, found: Sending) -> pa.Table:
        """Return the rows of the sessions that are sent; of the stored ones only these states are read."""
        spec, n = self.spec, len(verdict.changed)
        new, old = found.rows[found.rows < n], found.rows[found.rows >= n] - n
        both = concat([verdict.changed.take(new), stored.take(old)])
        index = pa.array(new)
        unpacked = StateCodec(spec.aggregates).decode(stored.state.take(pa.array(old)))
        pairs = zip(verdict.states, unpacked, strict=True)
        states: States = [concatenated([column.take(index), more]) for column, more in pairs]
        # Back in the order of the rows: the changed sessions came first.
        order = np.empty(len(found.rows), np.int64)
        order[np.argsort(found.rows >= n, kind="stable")] = np.arange(len(found.rows))
        place = pa.array(order)
        states = [column.take(place) for column in states]
        values = written_values(spec.aggregates, states)
        return session_rows(spec, "upsert", keys, both.take(order), self.context, values, found.trigger)


def unmarked(stored: Records) -> tuple[Marks, Records]:
    """Return stored sessions' marks, and the sessions without them."""
    marks, state = split_marks(stored.state)
    return marks, replace(stored, state=state)
