"""The kinds of sources, one entry each. A new source is its modules under `sources` and an entry here.

No other code tests for a kind of source; differences between kinds are fields of the entry.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator

from sessionlake.config.layouts import OF_CSV, OF_JSON, OF_TEXT
from sessionlake.sql_types import parse_type


def _column_type(text: str) -> str:
    parse_type(text)
    return text


Kind = Literal["files", "delta", "change_feed", "kafka", "results"]
"""The names that `source.kind` has: the entries' names."""
ColumnType = Annotated[str, AfterValidator(_column_type)]
"""A type that a config may give to a column (`sql_types.FORMS`)."""


@dataclass(frozen=True)
class SourceEntry:
    """The parts of a source, as module:name, and its capabilities."""

    check: str
    """Function of a `SourceSection` that raises ConfigError for keys that are missing or that don't go together."""
    source: str
    """The driver's half, a `sources.base.Source`: a class made of session, config and the input's number."""
    without_spark: str
    """Function of a config that returns as much of that half as can be asked without Spark."""
    place: str = "path"
    """The key of the section that names the input."""
    keys: tuple[str, ...] = ()
    """Keys of the section that this kind alone has."""
    has_own_keys_only: bool = False
    """Whether it has none of the keys that several kinds have."""
    has_topic: bool = False
    """Whether it reads records of a topic, which has a name in place of a path and can be written to."""
    has_offsets: bool = False
    """Whether each row has a partition and an offset, which number rows in their order."""
    can_replay: bool = True
    """Whether rows of past batches can be read again."""
    is_table: bool = False
    """Whether it is a Delta table, whose columns have types of their own."""
    opens_files: bool = False
    """Whether Python opens files itself, while rows of other sources come through Java."""
    bytes_per_batch: int | None = None
    """Bytes of a micro-batch, if the config bounds them by nothing."""
    is_pipeline: bool = False
    """Whether it is another pipeline, whose results are the rows."""
    has_changes: bool = False
    """Whether each row is a change: one that is added, or one that is taken back."""


_SOURCES = "sessionlake.sources"
_PREFLIGHT = "sessionlake.preflight.sources"
SOURCES: dict[str, SourceEntry] = {
    "files": SourceEntry(
        check=f"{_SOURCES}.sections:check_files",
        source=f"{_SOURCES}.files:FileSource",
        without_spark=f"{_PREFLIGHT}:local_files",
        keys=(*OF_CSV, *OF_TEXT, *OF_JSON),
        opens_files=True,
    ),
    "delta": SourceEntry(
        check=f"{_SOURCES}.sections:check_delta",
        source=f"{_SOURCES}.delta:DeltaSource",
        without_spark=f"{_PREFLIGHT}:logged_table",
        is_table=True,
        bytes_per_batch=1 << 30,
    ),
    "change_feed": SourceEntry(
        check=f"{_SOURCES}.sections:check_delta",
        source=f"{_SOURCES}.change_feed:ChangeFeedSource",
        without_spark=f"{_PREFLIGHT}:logged_feed",
        can_replay=False,
        is_table=True,
        bytes_per_batch=1 << 30,
        has_changes=True,
    ),
    "kafka": SourceEntry(
        check=f"{_SOURCES}.sections:check_kafka",
        source=f"{_SOURCES}.kafka:KafkaSource",
        without_spark=f"{_PREFLIGHT}:DeclaredTopic",
        place="topic",
        keys=(
            "bootstrap_servers",
            "topic",
            "topics",
            "topic_pattern",
            "avro_schema",
            "schema_registry",
            "schema_subject",
            "key_format",
            "confluent_header",
            "tombstones",
            "envelope",
            "options",
        ),
        has_topic=True,
        has_offsets=True,
        can_replay=False,
    ),
    "results": SourceEntry(
        check=f"{_SOURCES}.sections:check_results",
        source=f"{_SOURCES}.results:ResultsSource",
        without_spark=f"{_PREFLIGHT}:logged_results",
        place="of",
        keys=("of", "rows"),
        has_own_keys_only=True,
        can_replay=False,
        is_table=True,
        is_pipeline=True,
    ),
}
