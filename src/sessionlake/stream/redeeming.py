"""The capability of an operator to take in events that were refused before, whatever came since; the job `redeem` asks for it."""

from collections.abc import Callable
from dataclasses import dataclass

from sessionlake.aggregates import Aggregate, Events
from sessionlake.columnar.arrays import Bools
from sessionlake.sources.columns import EventColumns
from sessionlake.stream.ingest import EventSpec


@dataclass(frozen=True)
class Redeeming:
    """The reading of the events' texts; pickled to the workers."""

    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    refuses: Callable[[Events], Bools] | None = None
    """Says which events the operator refuses, besides those that break the contract."""

    @property
    def columns(self) -> EventColumns:
        """The columns of the source that are read."""
        return self.events.columns
