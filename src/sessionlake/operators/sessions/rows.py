"""Rows of session_changelog and stored_session_changelog, of records that a shard computed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.columnar.records import Records
from sessionlake.engine.operator import BatchContext
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.warehouse.changelog import STATE
from sessionlake.warehouse.row_table import Batch, RowTable
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME


def session_rows(
    spec: SessionizerSpec,
    op: str,
    keys: pa.Array,
    rows: Records,
    context: BatchContext,
    values: Sequence[pa.Array] | None,
    trigger: pa.Array | None = None,
) -> pa.Table:
    """Return rows of session_changelog; codes are places among the keys. `trigger` says why sessions are sent, by policy.

    Without `values` aggregates are null.
    """
    more = {} if values is None else spec.named(values)
    if trigger is not None:
        more["trigger"] = trigger
    if spec.emit is None:
        more[STATE] = rows.state
    return _rows(spec, spec.tables[-1], op, keys, rows, more, context)


def rows_of(spec: SessionizerSpec, keys: pa.Array, sessions: Records, context: BatchContext) -> pa.Table:
    """Return the rows of session_changelog that sent stored sessions last, but for `op`, their states and their batches."""
    values = values_of(spec.aggregates, StateCodec(spec.aggregates).decode(sessions.state))
    return session_rows(spec, "upsert", keys, sessions, context, values)


def deleted_rows(spec: SessionizerSpec, keys: pa.Array, gone: Records, context: BatchContext) -> pa.Table:
    """Return the rows of session_changelog that delete sessions."""
    return session_rows(spec, "delete", keys, _bare(gone, context.batch_id), context, None)


def stored_rows(spec: SessionizerSpec, op: str, keys: pa.Array, rows: Records) -> pa.Table:
    """Return rows of stored_session_changelog; states have their marks."""
    return _rows(spec, spec.tables[0], op, keys, rows, {STATE: rows.state}, None)


def stored_deletes(spec: SessionizerSpec, keys: pa.Array, gone: Records, batch_id: int) -> pa.Table:
    """Return the rows of stored_session_changelog that delete sessions."""
    return stored_rows(spec, "delete", keys, _bare(gone, batch_id))


def _rows(
    spec: SessionizerSpec,
    table: RowTable,
    op: str,
    keys: pa.Array,
    rows: Records,
    more: dict[str, pa.Array],
    by: Batch | None,
) -> pa.Table:
    of = table.changelog
    known = {
        of.start: pa.array(rows.start).cast(TIME),
        of.end: pa.array(rows.end).cast(TIME),
        "event_count": pa.array(rows.count),
        "revision": pa.array(rows.revision),
        **more,
    }
    if rows.until is not None and spec.windows.keeps_until:
        known[OPEN_UNTIL] = pa.array(rows.until).cast(TIME)
    return table.changes(spec.output_schema(table), op, keys.take(pa.array(rows.codes)), known, by)


def _bare(gone: Records, batch_id: int) -> Records:
    n = len(gone)
    return replace(gone, count=np.zeros(n, np.int64), revision=np.full(n, batch_id), state=pa.nulls(n, pa.binary()))
