"""Records of topics, read without Java by librdkafka: for a look at a topic, never for a batch of a pipeline."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sessionlake.errors import SourceError
from sessionlake.extras import require_extra

Start = tuple[str, int, int]
"""A topic, a partition, and the offset from which on it is read."""
_AT_ONCE, _TURN_S = 1000, 1.0


@dataclass(frozen=True)
class Record:
    """A record that has a value."""

    topic: str
    value: bytes
    key: bytes | None
    partition: int
    offset: int
    time_ms: int
    headers: Sequence[tuple[str, bytes | None]]


class TopicReader:
    """Reads topics of a broker; errors name `at`, a key of a config or a command."""

    def __init__(self, at: str, servers: str, patience_s: float, options: Mapping[str, str]) -> None:
        self._at, self._servers, self._patience_s = at, servers, patience_s
        self._options = dict(options)

    def topics(self) -> list[str]:
        """Return all topics of the broker; SourceError as below."""
        with self._consumer() as consumer:
            return [*consumer.list_topics(timeout=self._patience_s).topics]

    def first(self, topic: str, most_bytes: int) -> tuple[list[Record], bool]:
        """Return a topic's records from the beginning, evenly of all partitions, up to `most_bytes`, and whether those are all.

        SourceError if the broker says nothing within the time.
        """
        from confluent_kafka import OFFSET_BEGINNING  # noqa: PLC0415 (an extra)

        with self._consumer() as consumer:
            starts = [(topic, partition, OFFSET_BEGINNING) for partition in self._partitions(consumer, topic)]
            return self._polled(consumer, starts, most_bytes)

    def newest(self, topics: Sequence[str], most: int, most_bytes: int) -> list[Record]:
        """Return the newest records of some topics, evenly of all partitions: `most` at most, and no more once they have `most_bytes`.

        SourceError if the broker says nothing within the time.
        """
        from confluent_kafka import TopicPartition  # noqa: PLC0415 (an extra)

        with self._consumer() as consumer:
            places = [(topic, partition) for topic in topics for partition in self._partitions(consumer, topic)]
            starts, each = [], max(1, most // max(1, len(places)))
            for place in places[:most]:
                low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=self._patience_s)
                starts += [(*place, max(low, high - each))] if low < high else []
            return self._polled(consumer, starts, most_bytes, most)[0][:most]

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        require_extra(f"{self._at}: a look at a topic", "confluent_kafka", "kafka")
        from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 (an extra)

        ours = {"bootstrap.servers": self._servers, "group.id": "sessionlake-look", "enable.auto.commit": False}
        try:
            consumer = Consumer({**self._options, **ours, "enable.partition.eof": True, "log_level": 0})
        except KafkaException as error:
            raise SourceError(f"{self._at}: options are not librdkafka's ({error.args[0].str()})") from error
        try:
            yield consumer
        except KafkaException as error:
            raise SourceError(
                f"{self._at}: {self._servers!r} does not answer ({error.args[0].str()}); correct the servers"
            ) from error
        finally:
            consumer.close()

    def _partitions(self, consumer: Any, topic: str) -> list[int]:
        described = consumer.list_topics(topic, timeout=self._patience_s).topics[topic]
        if described.error is not None:
            raise SourceError(f"{self._at}: topic {topic!r} can't be read ({described.error.str()}); correct its name")
        return sorted(described.partitions)

    def _polled(
        self, consumer: Any, starts: Sequence[Start], most_bytes: int, most: int | None = None
    ) -> tuple[list[Record], bool]:
        """Read partitions evenly to their present end, or until there are enough records or bytes, or nothing more comes.

        With `most`, a number of records, all of it ends within the time, even if some come all the while.
        """
        from confluent_kafka import KafkaError, TopicPartition  # noqa: PLC0415 (an extra)

        consumer.assign([TopicPartition(*start) for start in starts])
        records: list[Record] = []
        ended, size, until = 0, 0, time.monotonic() + self._patience_s
        while ended < len(starts) and size < most_bytes and time.monotonic() < until:
            if most is not None and len(records) >= most:
                break
            for message in consumer.consume(_AT_ONCE, min(_TURN_S, self._patience_s)):
                until = until if most is not None else time.monotonic() + self._patience_s
                if message.error() is not None:
                    ended += message.error().code() == KafkaError._PARTITION_EOF  # noqa: SLF001 (its public name has the underscore)
                elif message.value() is not None:
                    place = (message.partition(), message.offset(), message.timestamp()[1])
                    records.append(
                        Record(message.topic(), message.value(), message.key(), *place, message.headers() or ())
                    )
                    size += len(message.value())
        return records, ended == len(starts)
