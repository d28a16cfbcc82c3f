"""Numbers of partitions of several topics that are read as one: no two partitions have one number.

A number must stay the same whatever topics are added, because state is kept by it. So a topic has a slot: of a list it follows from
the name; topics of a pattern, which may be many, are counted as they come, and the checkpoint keeps their order. Positions leave 23
bits for a partition (`stream/positions.py`): 11 for the slot, and 12 for the partition in its topic.
"""

import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # workers do without pydantic
    from sessionlake.config.source import SourceSection

PARTITIONS = 1 << 12
"""The partitions that a topic may have, if several are read."""
SLOTS = 1 << 11


def slot_of(topic: str) -> int:
    """Return a topic's slot. Two topics may have the same one, which a config refuses.

    >>> slot_of("orders-eu"), slot_of("orders-us")
    (278, 1650)
    """
    return zlib.crc32(topic.encode()) % SLOTS


def slots_of(source: "SourceSection") -> dict[str, int]:
    """Return the slots of the topics that a source reads; of a pattern they are in the order of their slots."""
    topics = source.topics or ()
    if source.topic_pattern is not None:
        return {name: slot for slot, name in enumerate(topics)}
    return {name: slot_of(name) for name in topics}
