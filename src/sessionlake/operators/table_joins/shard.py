"""One shard's part of a batch of a join of tables: its sides' rows are changed, and with them the results. The rules are `rules.py`'s."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, distinct, is_among
from sessionlake.columnar.groups import group_events
from sessionlake.columnar.texts import sorted_codes
from sessionlake.engine.operator import BatchContext, Inputs, ShardResult
from sessionlake.operators.shared.sides.columns import unpacked
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES, other_of
from sessionlake.operators.table_joins.control import REMOVE, REMOVE_SCHEMA
from sessionlake.operators.table_joins.mapper import LONE, ROW_SCHEMA, SIGN
from sessionlake.operators.table_joins.rules import Changed, SideChange, are_among, changed, net, positions
from sessionlake.operators.table_joins.spec import TableJoinSpec
from sessionlake.operators.table_joins.store import (
    Directory,
    SideRows,
    SideStore,
    bucket_of,
    buckets_of,
    together,
)
from sessionlake.operators.table_joins.table import CONTENT, JOINED, LEFT_POSITION, POSITION, RIGHT_POSITION, SIDE_ROWS
from sessionlake.warehouse.schemas import SIDE

_LETTERS = {LEFT: "l", RIGHT: "r"}
"""The sides' names in stores."""
_RESTORED_AT_A_TIME = 500_000
"""Rows, about: those of a key are never parted."""


@dataclass(frozen=True)
class _Given:
    """A side's rows of a batch."""

    codes: Ints
    signs: Ints
    content: pa.Array


@dataclass(frozen=True)
class _Plan:
    """What is read of a side, and how its keys are cut after the batch."""

    directory: Directory
    after: Directory
    recut: Bools
    """By code."""
    codes: Ints
    buckets: Ints
    """With `codes` the buckets that are read, each once."""


@dataclass(frozen=True)
class TableJoinShard:
    """Computes shards of one pipeline; a function of its arguments."""

    spec: TableJoinSpec

    def computed(self, inputs: Inputs, store: SideStore, context: BatchContext) -> ShardResult:
        """Return the shard's result: the rows of both sides that change, and the results that do."""
        rows = {side: inputs.get(side, ROW_SCHEMA.empty_table()) for side in SIDES}
        removals = inputs.get(REMOVE, REMOVE_SCHEMA.empty_table())
        tables = [*rows.values(), removals]
        codes, keys = sorted_codes(pa.chunked_array([c for t in tables for c in t["key"].chunks], pa.string()))
        parts = np.split(codes, np.cumsum([len(table) for table in tables])[:-1])
        lone = np.zeros(len(keys), bool)
        for side, part in zip(SIDES, parts, strict=False):
            lone[part[combined(rows[side][LONE]).to_numpy(zero_copy_only=False)]] = True
        given = {
            side: _Given(part, rows[side][SIGN].to_numpy(), combined(rows[side][CONTENT]))
            for side, part in zip(SIDES, parts, strict=False)
        }
        names = keys.cast(pa.binary())
        plans = {side: self._plan(store, names, given, side, lone) for side in SIDES}
        stored = {side: store.rows(_LETTERS[side], names, plans[side].codes, plans[side].buckets) for side in SIDES}
        changes = {side: _change(stored[side], given[side], plans[side], context.batch_id) for side in SIDES}
        found = changed(changes, lone, self.spec.outer)
        writes = [t for side in SIDES for t in _writes(store, side, names, plans[side], changes[side])]
        deleted = self._deleted(found, parts[-1], removals)
        results = [self._upserts(keys, found, context), self._deletes(keys, deleted, context)]
        stats = {"upserts": len(found.upserts), "deletes": len(deleted[0])}
        side = pa.concat_tables([t for s in SIDES for t in self._side_rows(s, keys, changes[s], context)])
        return ShardResult(
            pa.concat_tables(results),
            pa.concat_tables(writes) if any(map(len, writes)) else None,
            {SIDE_ROWS.output: side} if len(side) else {},
            stats,
        )

    def restored(self, rows: pa.Table, store: SideStore) -> Iterator[pa.Table]:
        """Yield the writes of a restore's rows."""
        rows = rows.combine_chunks()
        codes, keys = sorted_codes(rows["key"])
        names = keys.cast(pa.binary())
        order = np.argsort(codes, kind="stable")
        cuts = np.searchsorted(codes[order], distinct(codes[order][::_RESTORED_AT_A_TIME]))
        for at in np.split(order, cuts[1:]):
            part, of = rows.take(pa.array(at)), codes[at]
            writes = []
            for side in SIDES:
                here = pc.equal(part[SIDE], side)
                found = part.filter(here)
                some = of[combined(here).to_numpy(zero_copy_only=False)]
                kept = together([SideRows(some, found[POSITION].to_numpy(), combined(found[CONTENT]))])
                n = np.bincount(some, minlength=len(keys))
                cut = Directory(np.zeros_like(n), np.zeros_like(n)).after(n)
                there = np.flatnonzero(n)
                letter = _LETTERS[side]
                writes.append(store.writes(letter, names, *buckets_of(there, cut.bits[there]), cut.bits, kept))
                writes.append(store.directory_writes(letter, names, there, cut))
            yield pa.concat_tables(writes)

    def _plan(self, store: SideStore, names: pa.Array, given: Mapping[str, _Given], side: str, lone: Bools) -> _Plan:
        """Return the buckets to read: those of the batch's rows; all of a key that is cut again, or whose other side changes."""
        own = given[side]
        directory = store.directory(_LETTERS[side], names)
        rows = directory.rows + np.bincount(own.codes, own.signs, len(names)).astype(np.int64)
        # Rows that are taken back, and were not given, are found later.
        after = directory.after(np.maximum(rows, 0))
        recut = after.bits != directory.bits
        whole = recut.copy()
        whole[given[other_of(side)].codes] = True
        whole &= recut | ~lone
        some = np.flatnonzero(~whole[own.codes])
        codes, buckets = own.codes[some], bucket_of(own.content.take(pa.array(some)), directory.bits[own.codes[some]])
        every = buckets_of(np.flatnonzero(whole & (directory.rows > 0)), directory.bits[whole & (directory.rows > 0)])
        return _Plan(directory, after, recut, *_distinct_pairs(codes, buckets, every))

    def _deleted(self, found: Changed, codes: Ints, removals: pa.Table) -> list[Ints]:
        """Return code and positions of the results to delete, each once: those that are gone, and those of tombstones that the batch does not make anew."""
        gone, made = (
            [each.codes, *(positions(found.of, each, s) for s in SIDES)] for each in (found.deleted, found.upserts)
        )
        asked = [codes, *(removals[f"{side}_position"].to_numpy() for side in SIDES)]
        still = np.flatnonzero(~are_among(asked, made))
        both = [np.concatenate([some, more[still]]) for some, more in zip(gone, asked, strict=True)]
        order = np.lexsort(both[::-1])
        ordered = [column[order] for column in both]
        new = np.ones(len(order), bool)
        new[1:] = np.logical_or.reduce([np.diff(column) != 0 for column in ordered])
        return [column[new] for column in ordered]

    def _upserts(self, keys: pa.Array, found: Changed, context: BatchContext) -> pa.Table:
        left, right = (positions(found.of, found.upserts, side) for side in SIDES)
        # In an order that does not depend on how the store has cut its keys, so that a batch that is run again gives the same.
        order = np.lexsort((right, left, found.upserts.codes))
        upserts = found.upserts.take(order)
        known = _positions(left[order], right[order])
        for side, at in zip(SIDES, (upserts.left, upserts.right), strict=True):
            known |= self._columns(side, found.of[side], at)
        return self._results("upsert", keys.take(pa.array(upserts.codes)), known, context)

    def _columns(self, side: str, rows: SideRows, at: Ints) -> dict[str, pa.Array]:
        """Return a side's columns of the rows at some places, null for place -1; a row that is there often is unpacked once."""
        used = distinct(at[at >= 0])
        own, index = self.spec.both[side], pa.array(np.searchsorted(used, at), mask=at < 0)
        columns = unpacked(own, rows.content.take(pa.array(used)))
        return {f"{own.name}_{n}": column.take(index) for n, column in zip(own.types, columns, strict=True)}

    def _deletes(self, keys: pa.Array, deleted: list[Ints], context: BatchContext) -> pa.Table:
        codes, left, right = deleted
        return self._results("delete", keys.take(pa.array(codes)), _positions(left, right), context)

    def _results(self, op: str, keys: pa.Array, known: Mapping[str, pa.Array], context: BatchContext) -> pa.Table:
        schema = JOINED.changes_schema(self.spec.fields(JOINED, {}), marks=False)
        return JOINED.changes(schema, op, keys, known, context)

    @staticmethod
    def _side_rows(side: str, keys: pa.Array, change: SideChange, context: BatchContext) -> Iterator[pa.Table]:
        """Yield the rows of side_row_changelog."""
        follows = are_among(*([rows.codes, rows.position] for rows in (change.removed, change.added)))
        gone = change.removed.take(np.flatnonzero(~follows))
        schema = SIDE_ROWS.changes_schema([], marks=False)
        for op, rows in (("upsert", change.added), ("delete", gone)):
            known = {
                SIDE: pa.repeat(side, len(rows)),
                POSITION: pa.array(rows.position),
                **({CONTENT: rows.content} if op == "upsert" else {}),
            }
            yield SIDE_ROWS.changes(schema, op, keys.take(pa.array(rows.codes)), known, context)


def _change(stored: SideRows, given: _Given, plan: _Plan, batch_id: int) -> SideChange:
    removed, added = net(stored, given.codes, given.signs, given.content, batch_id)
    kept = np.ones(len(stored), bool)
    kept[removed] = False
    rows = plan.directory.rows
    number = rows + np.bincount(added.codes, minlength=len(rows))
    number -= np.bincount(stored.codes[removed], minlength=len(rows))
    return SideChange(stored.take(removed), added, stored.take(np.flatnonzero(kept)), rows, number)


def _writes(store: SideStore, side: str, names: pa.Array, plan: _Plan, change: SideChange) -> Iterator[pa.Table]:
    """Yield the writes of a side: buckets whose rows change, all of a key that is cut again, and directories."""
    letter, bits = _LETTERS[side], plan.after.bits
    touched = distinct(np.concatenate([change.removed.codes, change.added.codes]))
    if not len(touched):
        return
    same = touched[~plan.recut[touched]]
    again = touched[plan.recut[touched]]
    moved = together([change.removed, change.added])
    moved = moved.take(np.flatnonzero(is_among(moved.codes, same)))
    codes, buckets = _distinct_pairs(
        moved.codes, bucket_of(moved.content, bits[moved.codes]), buckets_of(again, bits[again])
    )
    after = together([change.kept, change.added])
    after = after.take(np.flatnonzero(is_among(after.codes, touched)))
    after = after.take(
        np.flatnonzero(are_among([after.codes, bucket_of(after.content, bits[after.codes])], [codes, buckets]))
    )
    old = buckets_of(again, plan.directory.bits[again])
    gone = np.flatnonzero(old[1] >= 1 << bits[old[0]])
    yield store.writes(letter, names, *_distinct_pairs(codes, buckets, (old[0][gone], old[1][gone])), bits, after)
    yield store.directory_writes(letter, names, touched, plan.after)


def _distinct_pairs(codes: Ints, buckets: Ints, more: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """Return all buckets, each once."""
    codes, buckets = np.concatenate([codes, more[0]]), np.concatenate([buckets, more[1]])
    order, starts = group_events(codes, buckets, 0)
    return codes[order[starts]], buckets[order[starts]]


def _positions(left: Ints, right: Ints) -> dict[str, pa.Array]:
    return {LEFT_POSITION: pa.array(left), RIGHT_POSITION: pa.array(right)}
