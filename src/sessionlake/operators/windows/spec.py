"""Tumbling windows, and what workers must know of a pipeline of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.columnar.arrays import Ints
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas
from sessionlake.warehouse.schemas import TIME


@dataclass(frozen=True)
class Bounds:
    """The times that decide about a batch, microseconds; all follow from the watermark that the batch before left."""

    close_us: int
    """A window that ends (exclusive) at or before it is closed: no event changes it."""
    expired_us: int
    """An event strictly before it is beyond retention."""
    horizon_us: int
    """A stored window that starts strictly before it is absent."""


@dataclass(frozen=True)
class TumblingWindows:
    """Windows [start, start + size) side by side from the epoch + offset; microseconds."""

    size_us: int
    offset_us: int
    grace_us: int
    retention_us: int

    def starts_of(self, time_us: Ints) -> Ints:
        """Return the start of the one window that each time lies in."""
        return (time_us - self.offset_us) // self.size_us * self.size_us + self.offset_us

    def bounds(self, watermark_us: int) -> Bounds:
        """Return the bounds of the batch after the one that left this watermark."""
        expired_us = watermark_us - self.retention_us
        return Bounds(max(watermark_us - self.grace_us, expired_us), expired_us, expired_us - self.size_us)


@dataclass(frozen=True)
class WindowSpec:
    """A pipeline's windows, aggregates and events."""

    windows: TumblingWindows
    aggregates: tuple[Aggregate, ...]
    events: EventSpec

    @property
    def changes_schema(self) -> pa.Schema:
        """Schema of the changes that a shard forwards."""
        return changelog_schema(self.aggregates, {}, marks=False)

    def under(self, live: Mapping[str, Any]) -> "WindowSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        windows = replace(self.windows, grace_us=live["grace_us"], retention_us=live["retention_us"])
        return replace(self, windows=windows, events=ingest.with_live_settings(self.events, live))


def changelog_schema(aggregates: tuple[Aggregate, ...], texts: Mapping[str, str], *, marks: bool) -> pa.Schema:
    """Return the schema of window_changelog, or without the marks of batch and attempt; `texts` say what aggregates are."""
    values = [schemas.commented(a.name, a.value_type, texts.get(a.name, a.name)) for a in aggregates]
    return pa.schema(
        [
            schemas.commented("op", pa.string(), "upsert"),
            *_WINDOW,
            schemas.commented("trigger", pa.string(), "early: before the watermark had passed the end; late: after it"),
            schemas.commented("emitted_at", TIME, "The clock of the batch that sent the row"),
            *values,
            _STATE,
            *([_ID, *schemas.BATCH_MARKS] if marks else []),
        ]
    )


def snapshot_schema(aggregates: tuple[Aggregate, ...], texts: Mapping[str, str]) -> pa.Schema:
    """Return the schema of the snapshot, windows."""
    changes = changelog_schema(aggregates, texts, marks=False)
    date = schemas.commented("window_date", pa.date32(), "UTC date of window_start")
    return pa.schema([*(field for field in changes if field.name != "op"), _ID, date])


_WINDOW = (
    schemas.commented("window_key", pa.string(), "The key whose events the window holds"),
    schemas.commented("window_start", TIME, "Start of the window, inclusive"),
    schemas.commented("window_end", TIME, "End of the window, exclusive"),
    schemas.commented("event_count", pa.int64(), "Events in the window"),
    schemas.commented("revision", pa.int64(), "batch_id of the window's last change"),
)
_STATE = schemas.commented("state", pa.binary(), "Packed aggregate states; what a restore needs beyond the values")
_ID = schemas.commented("window_id", pa.int64(), "xxhash64(window_key, window_start)")
