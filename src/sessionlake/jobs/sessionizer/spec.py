"""What workers must know of a pipeline; pickled to them once a batch."""

from dataclasses import dataclass

import pyarrow as pa

from sessionlake import schemas
from sessionlake.aggregates import Aggregate
from sessionlake.config.source import Format
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.kafka_records import Topic
from sessionlake.sources.decoding.long_lines import MAX_LINE_BYTES

DEAD_LETTER, DROP, EMIT = "dead_letter", "drop", "emit"


@dataclass(frozen=True)
class SessionizerSpec:
    """A pipeline's windows, aggregates, event columns and policies."""

    windows: SessionWindows
    aggregates: tuple[Aggregate, ...]
    columns: EventColumns
    shards: int
    beyond_retention: str = DEAD_LETTER
    max_future_skew_us: int | None = None
    format: Format | None = None
    """Format of the files that rows of (path, content) name; None where rows are events."""
    place: str | None = None
    """Where rows that are events come from, as dead letters name it."""
    archive: bool = False
    """Events that are not refused go to the archive too."""
    topic: Topic | None = None
    """The topic that records come from; None where rows are files or events."""
    max_key_bytes: int | None = None
    """An event whose key is longer is refused."""
    max_line_bytes: int = MAX_LINE_BYTES
    """A line of a text file that is longer is refused."""

    @property
    def value_types(self) -> dict[str, pa.DataType]:
        """Type of each aggregate's value, by name."""
        return {aggregate.name: aggregate.value_type for aggregate in self.aggregates}

    @property
    def changes_schema(self) -> pa.Schema:
        """Schema of the changes that a shard forwards."""
        return schemas.changes(self.value_types, {})

    @property
    def input_types(self) -> dict[str, pa.DataType]:
        """Type of each column that aggregates read."""
        return {name: self.columns.types[name] for name in self.columns.inputs}
