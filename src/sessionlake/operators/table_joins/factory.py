"""Joins of tables, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from typing import cast

from sessionlake.config.load import Config
from sessionlake.operators.shared.sides.equality import comparable
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.table_joins.operator import TableJoiner
from sessionlake.operators.table_joins.section import TableJoinSection
from sessionlake.operators.table_joins.spec import TableJoinSpec, TableSide
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import event_spec
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> TableJoiner:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    section = cast("TableJoinSection", config.section)
    sides = (_side(config, sources[name], name, pinned) for name in SIDES)
    left, right = comparable(f"{section.AT}.on", section.pairs_on, section.casts_on, *sides)
    return TableJoiner(TableJoinSpec(left, right, section.outer))


def _side(config: Config, source: TypedSource, name: str, pinned: Pinned | None) -> TableSide:
    section = cast("TableJoinSection", config.section)
    side, on = section.sides[name], section.keys[name]
    pinned = None if pinned is None else pinned.input(name)
    events = event_spec(config.inputs[name], source, tuple(dict.fromkeys((*on, *side.columns))), pinned, compared=on)
    return TableSide(side.name, on, tuple(side.columns), events)
