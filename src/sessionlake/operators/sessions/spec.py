"""What workers must know of a pipeline of sessions; pickled to them once a batch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.columnar.expressions import Expression
from sessionlake.config.quarantine import Quarantine
from sessionlake.operators.sessions.ttl import SessionTtl
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas


@dataclass(frozen=True)
class SessionizerSpec:
    """A pipeline's windows, aggregates and events."""

    windows: SessionWindows
    aggregates: tuple[Aggregate, ...]
    events: EventSpec
    gap_by: Expression | None = None
    """Each event's own gap, where it has one."""
    quarantine: Quarantine | None = None
    """The thresholds of sessions that are kept apart; batches only count them."""
    ttl: SessionTtl | None = None
    """When closed sessions expire; None where only retention ends them."""

    @property
    def columns(self) -> EventColumns:
        """The columns of the source that are read."""
        return self.events.decoder.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """Type of each aggregate's value, by name."""
        return {aggregate.name: aggregate.value_type for aggregate in self.aggregates}

    @property
    def changes_schema(self) -> pa.Schema:
        """Schema of the changes that a shard forwards."""
        return schemas.changes(self.value_types, {}, until=self.windows.keeps_until)

    @property
    def input_types(self) -> dict[str, pa.DataType]:
        """Type of each column that aggregates read."""
        return {name: self.columns.types[name] for name in self.columns.inputs}

    def under(self, live: Mapping[str, Any]) -> "SessionizerSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        windows = replace(self.windows, grace_us=live["grace_us"], retention_us=live["retention_us"])
        found = live.get("quarantine")
        rate = found and found["max_rate"]
        quarantine = found and Quarantine(**{**found, "max_rate": rate and tuple(rate)})
        events = ingest.with_live_settings(self.events, live)
        return replace(self, windows=windows, events=events, quarantine=quarantine)
