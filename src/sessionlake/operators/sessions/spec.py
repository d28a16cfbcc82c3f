"""The specification of a pipeline of sessions for workers; it is pickled once a batch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.codec import StateCodec
from sessionlake.columnar.expressions import Expression
from sessionlake.operators.sessions.marks import MarkedCodec
from sessionlake.operators.sessions.table import tables_of
from sessionlake.operators.sessions.thresholds import Quarantine
from sessionlake.operators.sessions.ttl import SessionTtl
from sessionlake.operators.sessions.windows import Bounds, SessionWindows, bounds_after
from sessionlake.operators.shared.windowing.emission import Progress, next_progress
from sessionlake.operators.shared.windowing.policies import CLOSE, Policies
from sessionlake.operators.shared.windowing.retained_counts import RetainedCounts
from sessionlake.sources.columns import EventColumns
from sessionlake.stream import ingest
from sessionlake.stream.described import AggregatedSpec
from sessionlake.warehouse.row_table import RowTable


@dataclass(frozen=True)
class SessionizerSpec(AggregatedSpec):
    """A pipeline's windows, aggregates and events."""

    windows: SessionWindows
    gap_by: Expression | None = None
    """Each event's own gap, if it has one."""
    quarantine: Quarantine | None = None
    """The thresholds of sessions that are kept apart; batches only count them."""
    ttl: SessionTtl | None = None
    """When closed sessions expire; None if only retention ends them."""
    emit: Policies | None = None
    """When sessions are sent; None if every change is sent with its batch."""
    retention_count: int | None = None
    """How many accepted events are kept at most; None for no limit within the retention's time."""

    @property
    def columns(self) -> EventColumns:
        """The columns of the source that are read."""
        return self.events.columns

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """Type of each aggregate's value, by name."""
        return {aggregate.name: aggregate.value_type for aggregate in self.aggregates}

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """The tables, in the order of their commits."""
        return tables_of(until=self.windows.keeps_until, sent=self.emit is not None)

    @property
    def changes_schema(self) -> pa.Schema:
        """Schema of the changes of sessions among the outputs of a shard."""
        return self.output_schema(self.tables[-1])

    @property
    def suite_values(self) -> dict[str, int | bool]:
        """The gap of the earliest times, and whether rows have states."""
        windows = self.windows
        gap_us = windows.before[0].gap_us if windows.before else windows.gap_us
        return {"gap_us": gap_us, "with_state": self.emit is None}

    @property
    def stored_codec(self) -> StateCodec:
        """The reader of the states that stores and tables have."""
        return StateCodec(self.aggregates) if self.emit is None else MarkedCodec(self.aggregates)

    @property
    def finals_last(self) -> bool:
        """Whether a session that was sent as full takes no more events (docs/rules.md, rule 264)."""
        return self.emit is not None and self.emit.full == CLOSE

    @property
    def keeping(self) -> RetainedCounts | None:
        """How events are counted for `retention_count`."""
        if self.retention_count is None:
            return None
        return RetainedCounts(self.retention_count, self.windows.kept_us, self.windows.widest_us)

    def bounds(self, state: Mapping[str, Any]) -> Bounds:
        """Return the times that decide about the batch after the one that left a state."""
        return bounds_after(self.windows, state, by_policy=self.emit is not None)

    def next_progress(self, before: Progress, stats: Mapping[str, int]) -> Progress:
        """Return how far the pipeline is after a batch with these numbers, of map tasks and shards."""
        windows = self.windows
        emit = Policies() if self.emit is None else self.emit
        return next_progress(emit, windows.grace_us, windows.kept_us, before, stats, self.keeping)

    def under(self, live: Mapping[str, Any]) -> "SessionizerSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        windows = replace(self.windows, grace_us=live["grace_us"], retention_us=live["retention_us"])
        found = live.get("quarantine")
        rate = found and found["max_rate"]
        quarantine = found and Quarantine(**{**found, "max_rate": rate and tuple(rate)})
        events = ingest.with_live_settings(self.events, live)
        emit = None if self.emit is None else Policies(**live["emit"])
        count = live.get("retention_count")
        return replace(self, windows=windows, events=events, quarantine=quarantine, emit=emit, retention_count=count)
