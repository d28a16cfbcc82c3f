"""Numbers of partitions of several topics that are read as one: no two partitions have one number.

A number must stay the same whatever topics are added, because state is kept by it. So a topic has a slot, which follows from its
name. Positions leave 23 bits for a partition (`stream/positions.py`): 11 for the slot, and 12 for the partition in its topic.
"""

import zlib

PARTITIONS = 1 << 12
"""The partitions that a topic may have, if several are read."""
_SLOTS = 1 << 11


def slot_of(topic: str) -> int:
    """Return a topic's slot. Two topics may have the same one, which a config refuses.

    >>> slot_of("orders-eu"), slot_of("orders-us")
    (278, 1650)
    """
    return zlib.crc32(topic.encode()) % _SLOTS


def first_partition(topic: str) -> int:
    """Return the number of a topic's partition 0."""
    return slot_of(topic) * PARTITIONS
