"""Windows by count as arithmetic, and the specification of a pipeline that workers get.

A *series* is a list of messages that are numbered from 1 on: the messages of a key (`per = "key"`), or all messages of a
source partition (`per = "partition"`, and sessions). A window aggregates the messages of one key. Both bounds of a window
are numbers that it has: [1, 3] are three messages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

from sessionlake.operators.shared.windowing.policies import CLOSE, Policies
from sessionlake.stream import ingest
from sessionlake.stream.described import AggregatedSpec
from sessionlake.stream.positions import PARTITION

PER_KEY, PER_PARTITION = "key", "partition"
PARTITION_SIZE = PARTITION
"""Positions of a source partition."""


@dataclass(frozen=True)
class Grid:
    """Tumbling and hopping windows [start, start + size - 1], one every `advance` from the series' first number + offset.

    >>> Grid(10, 4).slice
    2
    """

    size: int
    advance: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """Length of a slice: the longest stretch of numbers that no window's bound cuts."""
        return gcd(self.size, self.advance)

    @property
    def bucket(self) -> int:
        """Length of the stretch of ends that a list is of."""
        return self.advance


@dataclass(frozen=True)
class Sliding:
    """For each message i the window [i - size + 1, i]: SQL's ROWS BETWEEN size - 1 PRECEDING AND CURRENT ROW.

    The first ones hold fewer messages, and begin below the series' first number.
    """

    size: int

    @property
    def bucket(self) -> int:
        """Length of the stretch of ends that a list is of: nothing is ever listed."""
        return self.size


@dataclass(frozen=True)
class Sessions:
    """The messages of a key in a source partition, with at most `max_others` messages of other keys between two.

    >>> Sessions(5).gap
    6
    """

    max_others: int

    @property
    def gap(self) -> int:
        """The largest distance of two numbers that belong together."""
        return self.max_others + 1

    @property
    def bucket(self) -> int:
        """Length of the stretch of ends that a list is of."""
        return max(1, self.gap // 16)


Counts = Grid | Sliding | Sessions


@dataclass(frozen=True)
class CountSpec(AggregatedSpec):
    """A pipeline's windows by count, aggregates and events, and when which windows are sent."""

    windows: Counts
    per: str
    """The messages that are numbered: PER_KEY or PER_PARTITION; sessions are always of a partition."""
    emit: Policies
    retention_us: int

    @property
    def per_key(self) -> bool:
        """Whether a key's messages are numbered apart from others'."""
        return self.per == PER_KEY

    @property
    def suite_values(self) -> dict[str, int | bool]:
        """The arrangement of windows."""
        windows = self.windows
        grid = (windows.advance, windows.offset) if isinstance(windows, Grid) else (1, 0)
        return {
            "size": 0 if isinstance(windows, Sessions) else windows.size,
            "advance": grid[0],
            "offset": grid[1],
            "per_partition": not self.per_key,
            "whole": self.per_key and isinstance(windows, Grid),
        }

    def under(self, live: Mapping[str, Any]) -> "CountSpec":
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(
            self,
            events=ingest.with_live_settings(self.events, live),
            emit=Policies(**live["emit"]),
            retention_us=live["retention_us"],
        )


def policies(early: str | int, tick_offset: int) -> Policies:
    """Return when windows are sent: full ones at once, and nothing is ever late."""
    return Policies(early=early, late=CLOSE, tick_offset=tick_offset)
