"""Windows by time, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from typing import cast

from sessionlake.config.load import Config
from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.section import WindowSection
from sessionlake.operators.windows.spec import WindowSpec
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Windower:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    section = cast("WindowSection", config.section)
    aggregates, events = aggregated_events(config, sources[EVENTS], pinned)
    return Windower(
        WindowSpec(
            section.windows,
            aggregates,
            events,
            section.emit.policies,
            section.grace_us,
            section.retention_us,
            section.retention_count,
        )
    )
