"""Columns of a topic's record for a config, besides the value's: its key, headers, time and place, and whether it has a value."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.aggregates.numeric import OFFSET as TOPIC_OFFSET
from sessionlake.aggregates.numeric import PARTITION as TOPIC_PARTITION
from sessionlake.column_names import name_of, parts_of
from sessionlake.sources.columns import TIMESTAMP

if TYPE_CHECKING:  # workers and stores do without pydantic
    from sessionlake.config.source import SourceSection

KEY, TIME, PARTITION, OFFSET = "_key", "_timestamp", TOPIC_PARTITION, TOPIC_OFFSET
NO_VALUE = "_no_value"
"""If this column is read, a record without a value is a row like others; else the record is refused."""
TOPIC = "_topic"
"""The column of a record's topic, if several topics are read."""
HEADERS = "_headers"
"""The column of a record's headers (docs/rules/shared.md, rule 468), which are read from the topic only if it is read."""
META = {
    KEY: pa.string(),
    TIME: TIMESTAMP,
    PARTITION: pa.int64(),
    OFFSET: pa.int64(),
    NO_VALUE: pa.bool_(),
    HEADERS: pa.map_(pa.string(), pa.string()),
}
"""All of them, with types, for a single topic."""
OP, SOURCE_TIME = "_op", "_source_time"
CHANGE_META = {**META, OP: pa.string(), SOURCE_TIME: TIMESTAMP}
"""The same for records of a database's row changes: also the kind of a change, and when the database made it."""
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIME = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = {CHANGE_TYPE: pa.string(), COMMIT_VERSION: pa.int64(), COMMIT_TIME: TIMESTAMP}
"""Columns of a table's change data feed: a row's kind, and its commit's version and time."""
CHANGE_PLACES = {name: META[name] for name in (OFFSET, PARTITION)}
"""The columns of a change's place in the order of changes."""
TOMBSTONE_KIND, EXPIRY = "tombstone", "expiry"
"""Kinds of corrections for a topic's tombstones: without a cause, and with one."""


def of_key(name: str) -> str | None:
    """Return a field's name within a record's key; None for another column.

    >>> of_key("_key.shop.id"), of_key("_key"), of_key("id")
    ('shop.id', None, None)
    """
    first, *inner = parts_of(name)
    return name_of(inner) if first == KEY and inner else None


def meta_of(source: "SourceSection") -> Mapping[str, pa.DataType]:
    """Return rows' columns besides the source's value columns."""
    if source.entry.has_changes:
        return {**FEED_COLUMNS, **CHANGE_PLACES}
    found = META if source.envelope is None else CHANGE_META
    return {**found, TOPIC: pa.string()} if source.has_topics else found
