"""Processors, made of a config and its sources; without Spark."""

from collections.abc import Mapping
from typing import cast

from sessionlake.config.load import Config
from sessionlake.operators.process.operator import Process
from sessionlake.operators.process.output import OutputColumns
from sessionlake.operators.process.section import ProcessSection
from sessionlake.operators.process.spec import ProcessSpec
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream.events import event_spec, every_column
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.pinned import Pinned


def operator_of(config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Process:
    """Return the operator; `pinned` is what its batches have fixed, None before the first one.

    The class is loaded and opened once, so that its problems are reported before a batch. ConfigError for one that fails.
    """
    section, source = cast("ProcessSection", config.section), sources[EVENTS]
    columns = tuple(
        section.columns or every_column(config, source, pinned, (*config.event.key_columns, config.event.time))
    )
    spec = ProcessSpec(
        event_spec(config, source, columns, pinned, ordered=True),
        columns,
        section.processor,
        OutputColumns(dict(section.output)),
        section.retention_us,
        section.grace_us,
        section.max_state_bytes,
        config.pipeline.code,
    )
    spec.check_class()
    return Process(spec)
