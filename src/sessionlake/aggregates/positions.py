"""first_position and last_position: the topic positions of the first and the last event of a session or a window."""

import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events, States
from sessionlake.aggregates.numeric import Extreme
from sessionlake.aggregates.scalars import LONG

PARTITION, OFFSET = "_partition", "_offset"
"""The columns of a topic's record that a position is made of (`sources/record_columns.py`)."""
OFFSETS = 1 << 40
"""A position is the number of the partition, times this, plus the offset: fewer records of a partition are ever read."""


class PositionEdge(Extreme):
    """The least or the greatest position of the events; null for those that have none."""

    def __init__(self, name: str, *, latest: bool) -> None:
        super().__init__(name, OFFSET, LONG, largest=latest)
        self.inputs = (PARTITION, OFFSET)

    def lift(self, events: Events) -> States:
        """Return each event's position."""
        partition, offset = (events.columns[name].cast(LONG) for name in self.inputs)
        return [pc.add(pc.multiply(partition, pa.scalar(OFFSETS, LONG)), offset)]
