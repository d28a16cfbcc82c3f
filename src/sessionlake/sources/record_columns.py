"""Columns of a topic's record that a config may name besides those of its value: its key, time and place, and whether it has a value."""

import pyarrow as pa

from sessionlake.aggregates import positions
from sessionlake.sources.columns import TIMESTAMP

KEY, TIME, PARTITION, OFFSET = "_key", "_timestamp", positions.PARTITION, positions.OFFSET
NO_VALUE = "_no_value"
"""If this column is read, a record without a value is a row like others; else the record is refused."""
META = {KEY: pa.string(), TIME: TIMESTAMP, PARTITION: pa.int64(), OFFSET: pa.int64(), NO_VALUE: pa.bool_()}
"""All of them, with their types."""
TOMBSTONE_KIND, EXPIRY = "tombstone", "expiry"
"""Kinds of the corrections that tombstones of a topic are: those without a cause, and those with one."""
