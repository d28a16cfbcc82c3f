"""Rows of session_changelog and stored_session_changelog, of records that a shard computed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import BatchContext
from sessionlake.operators.sessions.changelog import STORED
from sessionlake.operators.sessions.schemas import stored_changes
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME

STATE = "stored_sessions"
"""Kind of the rows of stored_session_changelog."""


def session_rows(
    spec: SessionizerSpec,
    op: str,
    keys: pa.Array,
    rows: Records,
    context: BatchContext,
    values: Sequence[pa.Array],
    trigger: pa.Array | None = None,
) -> pa.Table:
    """Return rows of session_changelog; codes are places among the keys. `trigger` says why sessions are sent, by policy."""
    n, schema = len(rows), spec.changes_schema
    columns = {
        "op": pa.repeat(op, n),
        "session_key": keys.take(pa.array(rows.codes)),
        "session_start": pa.array(rows.start).cast(TIME),
        "session_end": pa.array(rows.end).cast(TIME),
        OPEN_UNTIL: pa.nulls(n, TIME) if rows.until is None else pa.array(rows.until).cast(TIME),
        "event_count": pa.array(rows.count),
        "revision": pa.array(rows.revision),
        "trigger": pa.nulls(n, pa.string()) if trigger is None else trigger,
        "emitted_at": pa.array(np.full(n, context.clock_us)).cast(TIME),
        **dict(zip(spec.value_types, values, strict=True)),
        "state": rows.state,
    }
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def rows_of(spec: SessionizerSpec, keys: pa.Array, sessions: Records, context: BatchContext) -> pa.Table:
    """Return the rows of session_changelog that sent stored sessions last, but for `op`, their states and their batches."""
    values = values_of(spec.aggregates, StateCodec(spec.aggregates).decode(sessions.state))
    return session_rows(spec, "upsert", keys, sessions, context, values)


def deleted_rows(spec: SessionizerSpec, keys: pa.Array, gone: Records, context: BatchContext) -> pa.Table:
    """Return the rows of session_changelog that delete sessions."""
    n = len(gone)
    nulls = [pa.nulls(n, type_) for type_ in spec.value_types.values()]
    return session_rows(spec, "delete", keys, _bare(gone, context.batch_id), context, nulls)


def stored_rows(spec: SessionizerSpec, op: str, keys: pa.Array, rows: Records) -> pa.Table:
    """Return rows of stored_session_changelog; states have their marks."""
    n, schema = len(rows), stored_changes(until=spec.windows.keeps_until)
    columns = {
        "op": pa.repeat(op, n),
        STORED.key: keys.take(pa.array(rows.codes)),
        STORED.start: pa.array(rows.start).cast(TIME),
        STORED.end: pa.array(rows.end).cast(TIME),
        OPEN_UNTIL: pa.nulls(n, TIME) if rows.until is None else pa.array(rows.until).cast(TIME),
        "event_count": pa.array(rows.count),
        "revision": pa.array(rows.revision),
        "state": rows.state,
    }
    return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)


def stored_deletes(spec: SessionizerSpec, keys: pa.Array, gone: Records, batch_id: int) -> pa.Table:
    """Return the rows of stored_session_changelog that delete sessions."""
    return stored_rows(spec, "delete", keys, _bare(gone, batch_id))


def _bare(gone: Records, batch_id: int) -> Records:
    n = len(gone)
    return replace(gone, count=np.zeros(n, np.int64), revision=np.full(n, batch_id), state=pa.nulls(n, pa.binary()))
