"""Groups: their specification for workers, and the columns of their tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.operators.groups.changelog import GROUPS
from sessionlake.stream import ingest
from sessionlake.stream.ingest import EventSpec
from sessionlake.warehouse import schemas


@dataclass(frozen=True)
class GroupSpec:
    """A pipeline's aggregates and events."""

    aggregates: tuple[Aggregate, ...]
    events: EventSpec

    def under(self, live: Mapping[str, Any]) -> "GroupSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(self, events=ingest.with_live_settings(self.events, live))


def changes_schema(spec: GroupSpec, texts: Mapping[str, str], *, marks: bool) -> pa.Schema:
    """Return the schema of group_changelog, with or without the marks of batch and attempt; `texts` describe the aggregates."""
    op = schemas.commented("op", pa.string(), "upsert, delete")
    return pa.schema([op, *_row(spec, texts), *(schemas.BATCH_MARKS if marks else [])])


def snapshot_schema(spec: GroupSpec, texts: Mapping[str, str]) -> pa.Schema:
    """Return the schema of groups."""
    part = schemas.commented(GROUPS.date, pa.int64(), "0: all rows are one part, and files hold ranges of keys")
    return pa.schema([*_row(spec, texts), part])


def _row(spec: GroupSpec, texts: Mapping[str, str]) -> list[pa.Field]:
    return [
        schemas.commented(GROUPS.key, pa.string(), "The key"),
        schemas.commented(GROUPS.time, schemas.TIME, "The clock of the batch that changed the row last"),
        schemas.commented("event_count", pa.int64(), "Events of the key; 0 in a delete"),
        schemas.commented("revision", pa.int64(), "batch_id of the row's last change"),
        *(schemas.commented(a.name, a.value_type, texts.get(a.name, a.name)) for a in spec.aggregates),
        schemas.commented("state", pa.binary(), "Packed aggregate states; what a restore needs beyond the values"),
    ]
