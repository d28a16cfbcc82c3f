"""Joins, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from typing import cast

from sessionlake.config.load import Config
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.section import JoinSection
from sessionlake.operators.joins.spec import JoinSpec, Side
from sessionlake.operators.shared.sides.equality import comparable
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import event_spec
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Joiner:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    section = cast("JoinSection", config.section)
    sides = (_side(config, sources[name], name, pinned) for name in SIDES)
    left, right = comparable(f"{section.AT}.on", section.pairs_on, section.casts_on, *sides)
    lengths = {n: section.on_axis(n, getattr(section, n)) for n in ("size", "advance", "offset", "gap")}
    spec = JoinSpec(
        section.pairs_on,
        left,
        right,
        section.by,
        section.kind,
        **lengths,
        grace_us=section.grace_us,
        retention_us=section.retention_us,
        retention_count=section.retention_count or 0,
        idle_us=section.idle_us,
        outer=section.outer,
        unmatched=section.unmatched,
        emit=section.emit.policies,
    )
    return Joiner(spec)


def _side(config: Config, source: TypedSource, name: str, pinned: Pinned | None) -> Side:
    section = cast("JoinSection", config.section)
    side = section.sides[name]
    pinned = None if pinned is None else pinned.input(name)
    events = event_spec(config.inputs[name], source, side.columns, pinned, config.keys[name], ordered=True)
    return Side(side.name, section.size_of(name), tuple(side.columns), events)
