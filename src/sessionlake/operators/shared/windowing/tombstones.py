"""Tombstones of windows: each deletes the row of a window that was sent (docs/rules.md, rule 110).

Only the tables have the rows that were sent: shards ask for those that tombstones name, in any form of their stores.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import LOOKUP, BatchContext, Inputs, Keyed, ShardResult, Split
from sessionlake.operators.shared.corrections.outcomes import with_outcomes
from sessionlake.stream.control import CorrectionKind, is_null, micros, no_time
from sessionlake.stream.described import SENT_SCHEMA
from sessionlake.warehouse.row_table import RowTable

REMOVE = "remove"
"""Kind of the rows that go to shards: one for each tombstone."""
REMOVE_SCHEMA = pa.schema(
    [
        ("correction_id", pa.string()),
        ("key", pa.string()),
        ("start_us", pa.int64()),
        ("revision", pa.int64()),
        ("any", pa.bool_()),
    ]
)
"""`any` says that the window need not be closed: a key that is forgotten leaves the stores, too, by the job itself."""
ASKED_SCHEMA = pa.schema([("key", pa.string()), ("start_us", pa.int64())])
"""Which rows a shard asks for."""
DECIDED = {REMOVE: "tombstone"}
"""Kinds of rows that a shard decides, and the corrections that they are of."""
_FORGET = "forget"


@dataclass(frozen=True)
class TombstoneMatches:
    """The rows that a shard's tombstones delete, and the tombstones that delete none."""

    rows: pa.Table
    """The rows (SENT_SCHEMA) that they delete."""
    stale: frozenset[str]
    """The ids of the tombstones that delete no row."""

    def deletes(self, table: RowTable, schema: pa.Schema, context: BatchContext) -> pa.Table:
        """Return the changes that delete the rows."""
        keys, start, end = (combined(self.rows[name]) for name in ("key", "start_us", "end_us"))
        return delete_rows(table, schema, keys, start, end, context)


NONE_REMOVED = TombstoneMatches(SENT_SCHEMA.empty_table(), frozenset())


def removed_by(inputs: Inputs, changes: pa.Table, are_over: Callable[[pa.Table], Bools]) -> TombstoneMatches:
    """Return the outcomes of tombstones; `inputs` also have the rows that they name.

    A tombstone is stale if its window was never sent, is gone, is at another revision or changes in this batch, if it
    is not over (`are_over` of rows in SENT_SCHEMA), or if a tombstone with a lower correction_id names it.
    """
    removals, rows = inputs[REMOVE], inputs.get(LOOKUP)
    ids = combined(removals["correction_id"])
    if rows is None or not rows.num_rows:
        return TombstoneMatches(SENT_SCHEMA.empty_table(), frozenset(ids.to_pylist()))
    tables = removals, rows, _named(changes)
    keys = pc.dictionary_encode(
        pa.concat_arrays([combined(t["key"]).cast(pa.string()) for t in tables])
    ).indices.to_numpy()
    starts = [t["start_us"].to_numpy() for t in tables]
    _, pair = np.unique(np.stack([keys, np.concatenate(starts)]), axis=1, return_inverse=True)
    mine, stored, changing = np.split(pair.reshape(-1), np.cumsum([len(part) for part in starts])[:-1])
    row = np.full(int(pair.max()) + 1, -1)
    row[stored] = np.arange(len(stored))
    at = row[mine]
    fits: Bools = (at >= 0) & ~np.isin(mine, changing)
    revision = rows["revision"].to_numpy()[at]
    whatever = combined(removals["any"]).to_numpy(zero_copy_only=False)
    fits &= (revision == removals["revision"].to_numpy()) & (are_over(rows)[at] | whatever)
    # The lowest fitting id of each window wins: rows come in any order, and a rerun must decide alike.
    order: Ints = pc.sort_indices(ids).to_numpy().astype(np.int64)
    order = order[fits[order]]
    _, first = np.unique(mine[order], return_index=True)
    taken = order[first]
    left = np.ones(len(ids), bool)
    left[taken] = False
    deleted = rows.take(pa.array(at[taken])).select(SENT_SCHEMA.names)
    return TombstoneMatches(deleted, frozenset(ids.filter(pa.array(left)).to_pylist()))


def with_removed(
    table: RowTable, result: ShardResult, inputs: Inputs, removed: TombstoneMatches, context: BatchContext
) -> ShardResult:
    """Return a shard's result with the outcomes of its tombstones."""
    deletes = removed.deletes(table, result.changes.schema, context)
    n = removed.rows.num_rows
    result = replace(result, changes=pa.concat_tables([result.changes, deletes]))
    numbers = {"applied": n, "deletes": result.stats.get("deletes", 0) + n}
    return with_outcomes(result, inputs, DECIDED, removed.stale, numbers)


def delete_rows(
    table: RowTable, schema: pa.Schema, keys: pa.Array, start: pa.Array, end: pa.Array, context: BatchContext
) -> pa.Table:
    """Return the changes that delete rows, with their ends as the table shows them."""
    places = ((table.changelog.start, start), (table.changelog.end, end))
    known = {name: values.cast(schema.field(name).type) for name, values in places}
    return table.changes(schema, "delete", keys, known, context)


def _named(changes: pa.Table) -> pa.Table:
    columns = [changes["window_key"].cast(pa.string()), changes["window_start"].cast(pa.int64())]
    return pa.Table.from_arrays(columns, schema=ASKED_SCHEMA)


def _bad_tombstone(table: pa.Table) -> Bools:
    # An empty key is that of windows without one.
    return no_time(table["start_time"]) | is_null(table, "key", "revision")


def _bad_numbered(table: pa.Table) -> Bools:
    return is_null(table, "key", "ordinal", "revision")


def _removals(rows: pa.Table) -> Split:
    yield _removed(rows, pa.array(micros(rows["start_time"])))


def _numbered_removals(rows: pa.Table) -> Split:
    yield _removed(rows, combined(rows["ordinal"]))


def _removed(rows: pa.Table, start: pa.Array) -> Keyed:
    ids, keys, revision = (combined(rows[name]) for name in ("correction_id", "key", "revision"))
    forgotten = pc.equal(pc.fill_null(combined(rows["job"]), ""), _FORGET)
    arrays = [ids, keys, start, revision, forgotten]
    return Keyed(REMOVE, keys, pa.Table.from_arrays(arrays, schema=REMOVE_SCHEMA))


TOMBSTONE = CorrectionKind(_bad_tombstone, _removals)
"""Tombstones of windows of time."""
NUMBERED_TOMBSTONE = CorrectionKind(_bad_numbered, _numbered_removals)
"""Tombstones of windows by count, which `ordinal` names: the number that the window starts at."""
