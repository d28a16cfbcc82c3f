"""States of earlier layouts, from wherever tables hand them to a shard, in the newest one (docs/rules.md, rule 240).

Stores, which are restored when a layout comes, hold states of the newest layout alone. So no operator knows of layouts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.layouts import Layouts
from sessionlake.columnar.arrays import Ints, bounds_of, combined
from sessionlake.engine.operator import LOOKUP, BatchContext, Inputs, Operator, ShardResult, Split
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.wrapped import Wrapped
from sessionlake.warehouse.schemas import LAYOUT

STATE, REVISION, PUT = "state", "revision", "put"


@dataclass(frozen=True)
class Relaid(Wrapped):
    """An operator that gets states of the newest layout alone; see `engine.operator.Operator` for the methods."""

    layouts: Layouts

    def laid_out(self, own: str) -> str:
        """Return them with the number of the newest layout."""
        return f"{own}/states {len(self.layouts.all) - 1}"

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split them with their states in the newest layout."""
        return self.operator.split_corrections(context, newest_corrections(self.layouts, table))

    def apply(self, inputs: Inputs, store: Any, context: BatchContext) -> ShardResult:
        """Compute the shard; rows that it has asked for come from tables."""
        if LOOKUP in inputs:
            inputs = {**inputs, LOOKUP: newest_rows(self.operator, self.layouts, inputs[LOOKUP])}
        return self.operator.apply(inputs, store, context)

    def restored(self, rows: pa.Table, store: Any, part: int) -> Iterator[pa.Table]:
        """Yield the operator's writes."""
        return self.operator.restored(newest_rows(self.operator, self.layouts, rows), store, part)


def relaid(operator: Operator[Any], layouts: Layouts | None) -> Operator[Any]:
    """Return the operator, or a wrapper that converts states to the newest layout if tables have several."""
    return operator if layouts is None else Relaid(operator, layouts)


def newest_rows(operator: Operator[Any], layouts: Layouts, rows: pa.Table) -> pa.Table:
    """Return a changelog's rows with states in the newest layout; their revisions give their layouts."""
    if not {STATE, REVISION} <= {*rows.column_names} or not isinstance(operator, EventOperator):
        return rows
    number = layouts.number(combined(rows[REVISION]).to_numpy())
    state = operator.with_states(combined(rows[STATE]), lambda packed: layouts.newest(packed, number))
    return rows.set_column(rows.column_names.index(STATE), STATE, state)


def newest_corrections(layouts: Layouts, table: pa.Table) -> pa.Table:
    """Return corrections, as rows of their table, with their states in the newest layout.

    The column `layout` has the number of their layout, from 0 on; null is the first.
    """
    number = numbers_of(table)
    state = layouts.newest(combined(table[STATE]), number)
    table = table.set_column(table.column_names.index(STATE), STATE, state)
    lists = combined(table[PUT])
    owner, items = pc.list_parent_indices(lists).to_numpy(), pc.list_flatten(lists)
    if not len(items):
        return table
    fields = {f.name: pc.struct_field(items, f.name) for f in items.type}
    fields[STATE] = layouts.newest(fields[STATE], number[owner])
    changed = pa.StructArray.from_arrays([*fields.values()], fields=[*items.type])
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int32)
    offsets = pa.array(bounds_of(lengths).astype(np.int32))
    puts = pa.ListArray.from_arrays(offsets, changed, type=lists.type, mask=lists.is_null())
    return table.set_column(table.column_names.index(PUT), PUT, puts)


def numbers_of(table: pa.Table) -> Ints:
    """Return in which layout the states of corrections are."""
    if LAYOUT not in table.column_names:
        return np.zeros(len(table), np.int64)
    return pc.fill_null(combined(table[LAYOUT]), 0).to_numpy().astype(np.int64)
