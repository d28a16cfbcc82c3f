"""Groups, made of a config and its sources; without Spark."""

from collections.abc import Mapping

from sessionlake.config.load import Config
from sessionlake.operators.groups.operator import Grouper
from sessionlake.operators.groups.spec import GroupSpec
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Grouper:
    """Make it; `pinned` is what its batches have fixed, None before the first one."""
    return Grouper(GroupSpec(*aggregated_events(config, sources[EVENTS], pinned)))
