"""Messages added singly, gathered until they are a batch."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sessionlake.local.rows import Row
from sessionlake.sources.record_columns import OFFSET, PARTITION


@dataclass
class MessageBatch:
    """Messages in the order in which they came."""

    messages: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    """By input."""
    last: dict[tuple[str, int], int] = field(default_factory=dict)
    """By input and source partition, the last position named by the caller."""
    clock_us: int = -(1 << 62)
    """The messages' latest clock, which is the batch's."""
    _places: dict[str, list[tuple[int, int | None]]] = field(default_factory=lambda: defaultdict(list))
    """The partition and the position of each message, by input."""

    def __len__(self) -> int:
        return sum(map(len, self.messages.values()))

    def put(self, name: str, partition: int, message: Row, position: int | None, clock_us: int) -> None:
        """Add a message of an input."""
        self.messages[name].append(dict(message))
        self._places[name].append((partition, position))
        self.clock_us = max(self.clock_us, clock_us)
        if position is not None:
            self.last[name, partition] = position

    def parted(self) -> Iterator[tuple[tuple[str, int], list[tuple[int, Row]]]]:
        """Yield messages by input and source partition, each with a place among the input's, and with the columns of a topic's place."""
        found: dict[tuple[str, int], list[tuple[int, Row]]] = defaultdict(list)
        for name, messages in self.messages.items():
            for at, ((partition, position), message) in enumerate(zip(self._places[name], messages, strict=True)):
                # A column of the message's own comes first.
                found[name, partition].append((at, {PARTITION: partition, OFFSET: position, **message}))
        yield from found.items()
