"""The specification of an operator with two inputs: the part that does not depend on the operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.operators.shared.sides.columns import AnySide, event_types
from sessionlake.operators.shared.sides.names import LEFT, RIGHT
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec


@dataclass(frozen=True)
class SidedSpec(Generic[AnySide]):
    """The part of a `DescribedSpec` that has a left and a right input, whose rows are paired and not aggregated."""

    left: AnySide
    right: AnySide

    @property
    def both(self) -> dict[str, AnySide]:
        """Both sides, LEFT first."""
        return {LEFT: self.left, RIGHT: self.right}

    @property
    def inputs(self) -> dict[str, EventSpec]:
        """The events of both."""
        return {name: side.events for name, side in self.both.items()}

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """Empty."""
        return ()

    @property
    def event_types(self) -> dict[str, pa.DataType]:
        """The columns of both sides, called as in a result."""
        return event_types(self.both)

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`).

        Each side has its own of events, under its name; others, as beyond_retention, hold for both.
        """
        sides: dict[str, Any] = dict(self.both)
        made = {
            name: replace(side, events=ingest.with_live_settings(side.events, {**live, **live[name]}))
            for name, side in sides.items()
        }
        return replace(self, **made)
