"""Sessions, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from sessionlake.config.load import Config
from sessionlake.operators.sessions.gap_by import parsed_gap, source_columns, typed_gap
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl_rule import session_ttl
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Sessionizer:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    windows, section = SessionWindows.of(config), cast("SessionSection", config.section)
    sql = parsed_gap(windows.gap_by)
    aggregates, events = aggregated_events(config, sources[EVENTS], pinned, more=source_columns(sql))
    gap_by = typed_gap(sql, events.types)
    quarantine = None if section.quarantine is None else section.quarantine.thresholds
    spec = SessionizerSpec(
        windows,
        aggregates,
        events,
        gap_by,
        quarantine,
        emit=section.policies,
        retention_count=section.retention_count,
    )
    return Sessionizer(replace(spec, ttl=session_ttl(spec, section.ttl)))
