"""A join of two streams as arithmetic on one axis.

A message has a place x on the axis: its time in microseconds, or its number in its source partition. Which messages can be
its partners is a stretch of the axis around x, by the kind of the join; that stretch is closed, both of its ends are in it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sessionlake.columnar.arrays import Ints
from sessionlake.operators.joins.spec import HOPPING, SESSION, SLIDING, JoinSpec, grid_width
from sessionlake.operators.shared.sides.names import LEFT, other_of

_BLOCKS = 16
"""The longest stretch of partners lies in about as many blocks at most."""


class JoinAxis(Protocol):
    """The largest distance of partners, by the kind of the join."""

    @property
    def width(self) -> int:
        """The length of the longest stretch of partners."""

    def partners(self, side: str, x: Ints) -> tuple[Ints, Ints]:
        """Return the least and the greatest place of the partners of messages of a side; partners are of the other side."""

    @property
    def reach(self) -> int:
        """The largest distance of two partners."""

    @property
    def patience(self) -> int:
        """How far beyond a message `closed_after` lies at most, if its session does not go on."""

    def open_until(self, side: str, x: Ints) -> Ints:
        """Return the last place, inclusive, at which a later message may still join with messages of a side."""

    def closed_after(self, side: str, x: Ints, last: Ints) -> Ints:
        """Return the place that the close must pass for no message to come any more that is a partner of messages of a side.

        `last` is the last place of each one's partners. A message that lies there is late once the close has passed its own
        `open_until`.
        """

    def end_alone(self, side: str, x: Ints) -> Ints:
        """Return the last place of the partners of messages of a side that are alone with their key."""


@dataclass(frozen=True)
class Sliding:
    """A left message l and a right message r are partners if r - left <= l <= r + right.

    For example, a shipment (right) joins orders (left) of the 120 seconds before it and the 30 seconds after it:

    >>> import numpy as np
    >>> low, high = Sliding(left=120, right=30).partners("right", np.array([1000]))
    >>> low.tolist(), high.tolist()
    ([880], [1030])
    """

    left: int
    """How far before a right message its left partners lie at most, inclusive."""
    right: int

    @property
    def width(self) -> int:
        """The length of the longest stretch of partners."""
        return self.left + self.right + 1

    def partners(self, side: str, x: Ints) -> tuple[Ints, Ints]:
        """Return the least and the greatest place of the partners of messages of a side."""
        back, forth = (self.right, self.left) if side == LEFT else (self.left, self.right)
        return x - back, x + forth

    @property
    def reach(self) -> int:
        """The greater of the two sizes."""
        return max(self.left, self.right)

    @property
    def patience(self) -> int:
        """Both sizes."""
        return self.left + self.right

    def open_until(self, side: str, x: Ints) -> Ints:
        """Return the last place of the partners of messages of a side."""
        return self.partners(side, x)[1]

    def closed_after(self, side: str, x: Ints, last: Ints) -> Ints:
        """Return the last place of the partners of the last possible partner: both sizes after each message.

        For example, an order at 1000 may have a shipment up to 1120, which is late once the close has passed 1150:

        >>> import numpy as np
        >>> orders, axis = np.array([1000]), Sliding(left=120, right=30)
        >>> axis.closed_after("left", orders, axis.open_until("left", orders)).tolist()
        [1150]
        """
        del x
        return self.open_until(other_of(side), last)

    def end_alone(self, side: str, x: Ints) -> Ints:
        """Return the last place of the partners of messages of a side."""
        return self.open_until(side, x)


@dataclass(frozen=True)
class Grid:
    """Partners lie in one window [start, start + size); windows begin every `advance`, <= size, from the origin + offset.

    >>> import numpy as np
    >>> low, high = Grid(size=10, advance=5, offset=0).partners("left", np.array([12]))
    >>> low.tolist(), high.tolist()
    ([5], [19])
    """

    size: int
    advance: int
    offset: int

    @property
    def width(self) -> int:
        """The length of the longest stretch of partners."""
        return grid_width(self.size, self.advance)

    @property
    def reach(self) -> int:
        """Nearly the size."""
        return self.size - 1

    @property
    def patience(self) -> int:
        """From the start of a message's last window to the end of the last one that overlaps it."""
        return self.width

    def partners(self, side: str, x: Ints) -> tuple[Ints, Ints]:
        """Return the first place of the first window that has each message, and the last place of the last."""
        del side
        # The start of the last window that has x, rounded down.
        last = (x - self.offset) // self.advance * self.advance + self.offset
        return self.first_end(x) - self.size, last + self.size - 1

    def first_end(self, x: Ints) -> Ints:
        """Return the exclusive end of the first window that has each message.

        >>> import numpy as np
        >>> Grid(size=10, advance=5, offset=0).first_end(np.array([12])).tolist()
        [15]
        """
        # Its start is rounded up.
        return -((self.offset - (x - self.size + 1)) // self.advance) * self.advance + self.offset + self.size

    def open_until(self, side: str, x: Ints) -> Ints:
        """Return the last place of the partners of messages of a side."""
        return self.partners(side, x)[1]

    def closed_after(self, side: str, x: Ints, last: Ints) -> Ints:
        """Return the last place of the last window that has the last possible partner; for example, of a tumbling join the end of the one window."""
        del x
        return self.open_until(side, last)

    def end_alone(self, side: str, x: Ints) -> Ints:
        """Return the last place of the partners of messages of a side."""
        return self.open_until(side, x)


@dataclass(frozen=True)
class Session:
    """Partners lie in one session: a run of messages of both sides in which neighbors are at most `gap` apart.

    They are never further apart than `span`, and retention keeps that much.
    """

    gap: int
    span: int

    @property
    def width(self) -> int:
        """The length of the longest stretch of partners."""
        return 2 * self.span + 1

    def partners(self, side: str, x: Ints) -> tuple[Ints, Ints]:
        """Return the bounds of the messages that can be in one session with each message."""
        del side
        return x - self.span, x + self.span

    @property
    def reach(self) -> int:
        """The span."""
        return self.span

    @property
    def patience(self) -> int:
        """Twice the gap."""
        return 2 * self.gap

    def open_until(self, side: str, x: Ints) -> Ints:
        """Return the end of the session of each message alone, and the gap."""
        del side
        return x + self.gap

    def closed_after(self, side: str, x: Ints, last: Ints) -> Ints:
        """Return two gaps after the session's present end, `last`: a message a gap later is late once the close has passed that.

        For example, with a gap of 10 a message that ends its session at 100 may get a partner at 110, which is late after 120.
        """
        del side
        return np.minimum(last + 2 * self.gap, x + self.span + self.gap)

    def end_alone(self, side: str, x: Ints) -> Ints:
        """Return each message itself, the end of its session."""
        del side
        return x


def axis_of(spec: JoinSpec) -> JoinAxis:
    """Return the axis of a join, which decides which messages are partners."""
    free = spec.retained - (spec.grace_us if spec.by_time else 0)
    if spec.kind == SLIDING:
        # By count a window of n messages reaches n - 1 back.
        less = 0 if spec.by_time else 1
        left, right = spec.left.size, spec.right.size
        left = free - (0 if right is None else right) if left is None else left
        right = free - left if right is None else right
        return Sliding(left - less, right - less)
    if spec.kind == SESSION:
        return Session(spec.gap, free - spec.gap)
    return grid_of(spec)


def grid_of(spec: JoinSpec) -> Grid:
    """Return the windows of a tumbling or hopping join."""
    return Grid(spec.size, spec.advance if spec.kind == HOPPING else spec.size, spec.offset)


def block_of(spec: JoinSpec) -> int:
    """Return the length of a store's block. A new message writes its own block again, and reads those of its partners.

    If both sides reach equally far, partners lie in two blocks. If one side reaches much further, long blocks would be
    written again with each message: then its partners lie in more, shorter blocks.
    """
    axis = axis_of(spec)
    near = axis.width
    if isinstance(axis, Sliding):
        near = 2 * min(axis.left, axis.right) + 1
    elif isinstance(axis, Session):
        near = axis.gap + 1
    return min(max(near, -(-axis.width // _BLOCKS)), spec.segment)
