"""Windows by count, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from typing import cast

from sessionlake.config.load import Config
from sessionlake.operators.counts.operator import Counter
from sessionlake.operators.counts.section import CountSection
from sessionlake.operators.counts.spec import CountSpec
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Counter:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    section = cast("CountSection", config.section)
    aggregates, events = aggregated_events(config, sources[EVENTS], pinned, ordered=True)
    policies = section.emit.policies
    return Counter(CountSpec(section.windows, section.numbered, aggregates, events, policies, section.retention_us))
