"""Stored rows compared with rows computed from the events, and the corrections for the difference. Pure Arrow."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.codec import StateCodec, states_equal
from sessionlake.aggregates.partials import Partials, merge_states
from sessionlake.columnar import records
from sessionlake.columnar.arrays import Bools, Groups, Ints
from sessionlake.columnar.records import Records
from sessionlake.warehouse import schemas
from sessionlake.warehouse.schemas import TIME

NO_MARKS = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))


def correction_schema(*, until: bool = False) -> pa.Schema:
    """Return the schema of `replace` corrections; no two of a run have the same `group_start` and key. `until`: as `schemas.corrections`."""
    remove, put = (schemas.corrections(until=until).field(name).type for name in ("remove", "put"))
    return pa.schema(
        [
            ("key", pa.string()),
            ("group_start", pa.int64()),
            ("start_time", TIME),
            ("revision", pa.int64()),
            ("remove", remove),
            ("put", put),
        ]
    )


@dataclass(frozen=True)
class Difference:
    """The corrections that make the stored rows of a bucket right."""

    corrections: pa.Table
    """As `correction_schema` says: a row for each group of rows that are replaced together."""
    stats: dict[str, int]
    """`open_low` and `open_high` say how many groups may go on before and after the times that were read."""


@dataclass(frozen=True)
class Comparison:
    """A bucket's stored and computed rows, in groups; a correction replaces rows of a group."""

    aggregates: Sequence[Aggregate]
    keys: pa.Array
    """The keys, by their codes."""
    old: Records
    new: Records
    order: Ints
    """The order that brings groups together, over the stored rows and then the computed rows."""
    at: Ints
    """Positions in the order at which a group begins."""
    in_range: Bools
    """By position in the order: whether the row is compared."""
    again: Bools
    """By group: whether it is replaced though no row of it differs."""

    @cached_property
    def rows(self) -> Records:
        """The stored rows, then the computed ones."""
        return records.concat([self.old, self.new])

    @cached_property
    def groups(self) -> Groups:
        """The groups of rows, in order."""
        return Groups(self.at, len(self.order))

    @cached_property
    def is_new(self) -> Bools:
        """By position in the order: whether the row is a computed one."""
        return self.order >= len(self.old)

    @cached_property
    def wrong(self) -> Bools:
        """By position in the order: whether no row of the other side equals it."""
        return self.in_range & ~_have_twins(self)

    @cached_property
    def differs(self) -> Bools:
        """By group: whether a row of it is wrong."""
        differing = np.zeros(len(self.at), bool)
        differing[self.groups.ids[self.wrong]] = True
        return differing

    @cached_property
    def named(self) -> Ints:
        """The groups that corrections replace."""
        return np.flatnonzero(self.differs | self.again)

    def difference(
        self,
        schema: pa.Schema,
        start: pa.Array,
        revision: pa.Array,
        marks: tuple[Ints, Ints, Ints] = NO_MARKS,
    ) -> Difference:
        """Return a correction for each group of `named`, with the given columns start_time and revision.

        `marks` are further entries of the column `remove`, in three columns: positions of groups in `named` (ascending),
        starts and revisions.
        """
        rows, ids = self.rows, self.groups.ids
        number = np.full(len(self.at), -1)
        number[self.named] = np.arange(len(self.named))
        replaced = self.wrong | self.again[ids]
        removed = np.flatnonzero(replaced & ~self.is_new)
        # Nothing was computed outside of the range, so rows stored there stay.
        put = np.flatnonzero(replaced & (self.is_new | ~self.in_range))
        of_removed = np.concatenate([number[ids[removed]], marks[0]])
        # Stable: within a group removed rows stay in order, and marks follow.
        by_group = np.argsort(of_removed, kind="stable")
        starts = np.concatenate([rows.start[self.order[removed]], marks[1]])[by_group]
        revisions = np.concatenate([rows.revision[self.order[removed]], marks[2]])[by_group]
        first, comes = self.order[self.at[self.named]], rows.take(self.order[put])
        columns = [
            pa.array(comes.start).cast(TIME),
            pa.array(comes.end).cast(TIME),
            pa.array(comes.count),
            comes.state,
        ]
        if schema.field("put").type.value_type.num_fields > len(columns):
            # Records without rows have no such column.
            columns.append(pa.array(comes.end if comes.until is None else comes.until).cast(TIME))
        groups = len(self.named)
        arrays = [
            self.keys.take(pa.array(rows.codes[first])).cast(pa.string()),
            pa.array(rows.start[first], pa.int64()),
            start,
            revision,
            _lists([pa.array(starts).cast(TIME), pa.array(revisions)], schema.field("remove"), of_removed[by_group], groups),
            _lists(columns, schema.field("put"), number[ids[put]], groups),
        ]  # fmt: skip
        stats = {
            "unchanged": int((self.in_range & ~self.wrong & ~self.is_new).sum()),
            "removed": len(removed),
            "put": len(put),
            "corrections": groups,
        }
        return Difference(pa.Table.from_arrays(arrays, schema=schema), stats)


def merged(
    aggregates: Sequence[Aggregate],
    partials: Partials,
    codes: Ints,
    keys: pa.Array,
    grouped: tuple[Ints, Ints],
    until: Ints | None = None,
) -> Records:
    """Merge the partials of each group, given as an order and the positions in it at which groups begin."""
    order, at = grouped
    if not len(at):
        return Records.empty()
    of_groups, rows = codes[order][at], pa.array(order)
    groups = Groups(at, len(order), lambda: keys.take(pa.array(of_groups)))
    states = merge_states(aggregates, [column.take(rows) for column in partials.states], groups)
    return Records(
        of_groups,
        # `at` are the first rows of the groups in this order.
        np.minimum.reduceat(partials.start[order], at),
        np.maximum.reduceat(partials.end[order], at),
        np.add.reduceat(partials.count[order], at),  # an event is in a single partial
        np.full(len(at), -1),
        StateCodec(aggregates).encode(states, len(at)),
        # A merged session is open as long as its last part.
        None if until is None else np.maximum.reduceat(until[order], at),
    )


def are_forgotten(codes: Ints, batch: Ints, forgotten: Mapping[str, int], keys: pa.Array) -> Bools:
    """Say which partials are of erased keys and of a batch up to the key's in `forgotten`, by SHA-256 of the key."""
    if not forgotten:
        return np.zeros(len(codes), bool)
    hashes = (hashlib.sha256(key.encode()).hexdigest() for key in keys.to_pylist())
    until = np.array([forgotten.get(hashed, -1) for hashed in hashes], np.int64)
    forgotten_rows: Bools = batch <= until[codes]
    return forgotten_rows


def _have_twins(of: Comparison) -> Bools:
    """Say for each row in order, stored or computed, whether the other side has an equal row."""
    order, rows, is_new = of.order, of.rows, of.is_new
    out = np.zeros(len(order), bool)
    codes, start = rows.codes[order], rows.start[order]
    pair = np.flatnonzero((codes[1:] == codes[:-1]) & (start[1:] == start[:-1]) & (is_new[1:] != is_new[:-1]))
    if not len(pair):
        return out
    a = np.where(is_new[pair], order[pair + 1], order[pair])
    b = np.where(is_new[pair], order[pair], order[pair + 1])
    alike = (rows.end[a] == rows.end[b]) & (rows.count[a] == rows.count[b])
    if rows.until is not None:
        alike &= rows.until[a] == rows.until[b]
    pair, a, b = pair[alike], a[alike], b[alike]
    equal = states_equal(of.aggregates, rows.state.take(pa.array(a)), rows.state.take(pa.array(b)))
    out[pair[equal]] = True
    out[pair[equal] + 1] = True
    return out


def _lists(columns: list[pa.Array], of: pa.Field, group: Ints, groups: int) -> pa.Array:
    """Return for each group a list of structs, as a column has it; rows are in group order."""
    type_ = of.type
    # Rows ascend by group: a group's list ends where the next group's begins.
    offsets = np.searchsorted(group, np.arange(groups + 1)).astype(np.int32)
    arrays = [column.cast(field.type) for column, field in zip(columns, type_.value_type, strict=True)]
    items = pa.StructArray.from_arrays(arrays, fields=list(type_.value_type))
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=type_)
