"""The capability of an operator to have rows removed by tombstones in the topic that its events come from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column


@dataclass(frozen=True)
class TopicTombstones:
    """The tombstones' records: a row's key, no value, and headers."""

    key: str
    """The column of the key, of the rows that are given."""
    headers: Callable[[], Mapping[str, Column]]
    """Returns the values of the headers, by their names in `sources.decoding.kafka_records.HEADERS`."""
    partition: str | None = None
    """The column of the partition that the record is sent to; None if its key says which."""
    of_keys: bool = False
    """Whether a tombstone removes a key's row whatever its revision, as any reader of the topic takes it.
    Its record's key must then be that of the events' records, and rows are given as the changelog has them, with CAUSE."""
