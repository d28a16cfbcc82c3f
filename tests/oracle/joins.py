"""Joins of two streams, twice over: a plain double loop that plays batches, and DuckDB SQL of what was accepted.

Neither shares code with sessionlake. Times are whole numbers of any one unit. A message is a tuple of side, key, time and
source partition; by count its place on the axis is its number among the accepted and late messages of side and partition.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import duckdb
import pyarrow as pa

Side = Literal["left", "right"]
BEFORE_ALL = -math.inf
PARTITION = 1 << 40


class Given(NamedTuple):
    """A message as it comes in; one without a key is refused."""

    side: Side
    key: str | None
    time: int
    partition: int = 0


class Message(NamedTuple):
    """A message that was taken in, or that was late: `place` is where it stands on the axis of the join."""

    side: Side
    key: str
    time: int
    position: int
    place: int


@dataclass(frozen=True)
class Reach:
    """Which messages are partners. Sliding: `left` is how far back of a right message a left one may lie, inclusive."""

    kind: Literal["sliding", "tumbling", "hopping", "session"]
    left: int = 0
    right: int = 0
    size: int = 1
    advance: int = 1
    offset: int = 0
    gap: int = 0
    span: int = 0

    def windows(self, place: int) -> Iterable[tuple[int, int]]:
        """Yield the windows of the grid that hold a place, as (first, last) place."""
        n = (place - self.offset) // self.advance
        while (start := self.offset + n * self.advance) + self.size > place:
            yield start, start + self.size - 1
            n -= 1

    def last(self, side: Side, place: int) -> int:
        """Return the last place that may have to do with a message."""
        if self.kind == "sliding":
            return place + (self.left if side == "left" else self.right)
        if self.kind == "session":
            return place + self.gap
        return max(last for _, last in self.windows(place))

    def partners(self, left: int, right: int, between: Iterable[int]) -> bool:
        """Say whether two places are partners; `between` are all places of the key, which sessions hang on."""
        if self.kind == "sliding":
            return right - self.left <= left <= right + self.right
        if self.kind == "session":
            low, high = sorted((left, right))
            run = sorted(place for place in between if low <= place <= high)
            return high - low <= self.span and all(b - a <= self.gap for a, b in pairwise(run))
        return any(first <= right <= last for first, last in self.windows(left))


@dataclass
class Result:
    """What became of a batch: pairs of left and right positions."""

    pairs: set[tuple[str, int, int]] = field(default_factory=set)
    alone: set[tuple[str, int, int]] = field(default_factory=set)
    """Messages that are sent without a partner, whose position is 0."""
    taken_back: set[tuple[str, int, int]] = field(default_factory=set)
    accepted: list[Message] = field(default_factory=list)
    late: list[Message] = field(default_factory=list)
    dead: list[Given] = field(default_factory=list)


@dataclass
class JoinModel:
    """Play batches to a double loop. `early` and `late` are "batch" or a period; `retention` is about times."""

    reach: Reach
    by_time: bool = True
    grace: int = 0
    retention: int = 10**15
    idle: int = 10**15
    early: Literal["batch", "off"] | int = "batch"
    late: Literal["batch"] | int = "batch"
    most: int | None = None
    """By time: how many accepted messages are kept, by cells as long as `least` or a 64th of the retention."""
    least: int = 0
    """How far back of the watermark a message may have partners."""
    outer: Sequence[Side] = ()
    """The sides whose messages are sent without a partner, too."""
    unmatched: Literal["close", "batch"] = "close"
    full: Literal["end", "close"] | None = None
    """Pairs wait until the first window that has both of their messages ends, or closes."""

    def __post_init__(self) -> None:
        self.close: float = BEFORE_ALL
        self.full_to: float = BEFORE_ALL
        self.was: tuple[Any, ...] | None = None
        self.there: list[Message] = []
        self.matched: set[Message] = set()
        self.alone: dict[Message, tuple[str, int, int]] = {}
        self.closed: set[Message] = set()
        self.watermark: float = BEFORE_ALL
        self.expired: float = BEFORE_ALL
        self.kept: float = BEFORE_ALL
        self.counted: list[int] = []
        self.reached: dict[Side, float] = {"left": BEFORE_ALL, "right": BEFORE_ALL}
        self.seen: dict[Side, int] = {}
        self.clock: int | None = None
        self.numbers: defaultdict[tuple[Side, int], int] = defaultdict(int)
        self.waiting: dict[Message, str] = {}
        self.due: list[Message] = []
        self.sent: set[tuple[str, int, int]] = set()
        self.apart: set[frozenset[Message]] = set()

    def batch(
        self, given: Iterable[Given], clock: int, *, flush: bool = False, again: Iterable[Message] = ()
    ) -> Result:
        """Process one batch; `flush` ends all periods, `again` are late messages that are handed in as if new."""
        result = self.judged(given)
        again = list(again)
        beyond = self.expired if again else BEFORE_ALL
        # A message beyond retention is gone for those that are handed in now, also in later batches.
        for gone in [m for m in {*self.due, *self.waiting, *self.there} if m.place < beyond]:
            self.apart |= {frozenset((gone, message)) for message in again}
        for message in (*result.accepted, *again):
            self.waiting[message] = self.policy_of(message)
        fires = self.firing(clock, flush)
        self.advance(result.accepted, clock)
        for message in [
            m for m, policy in self.waiting.items() if fires[policy] or (policy == "full" and self.is_full(m))
        ]:
            del self.waiting[message]
            if message not in self.due:
                self.due.append(message)
        result.pairs = {pair for pair in self.pairs(beyond) if pair not in self.sent}
        self.sent |= result.pairs
        if self.outer:
            self.report([*result.accepted, *again], beyond, result)
        return result

    def report(self, fresh: Sequence[Message], beyond: float, result: Result) -> None:
        """Say which messages are sent without a partner, and of which that is taken back."""
        self.there += [message for message in fresh if message not in self.there]
        there = [message for message in self.there if message.place >= beyond]
        for left in (m for m in there if m.side == "left"):
            for right in (m for m in there if m.side == "right" and m.key == left.key):
                places = [m.place for m in there if m.key == left.key]
                if self.reach.partners(left.place, right.place, places) and {left, right} not in self.apart:
                    self.matched |= {left, right}
        self.close = max(self.close, self.watermark - self.grace, self.expired)
        for message in self.there:
            if message.side not in self.outer:
                continue
            if message in self.matched:
                if message in self.alone:
                    result.taken_back.add(self.alone.pop(message))
                continue
            now = message in fresh if self.unmatched == "batch" else self.over(message) < self.close
            if now and message not in self.closed:
                self.closed.add(message)
                left = message.side == "left"
                self.alone[message] = (message.key, message.position if left else 0, 0 if left else message.position)
                result.alone.add(self.alone[message])

    def over(self, message: Message) -> float:
        """Return the last place at which the close may stand if a partner is still to come; of windows by trying all places."""
        other: Side = "right" if message.side == "left" else "left"
        if self.reach.kind == "session":
            end = message.place
            for place in sorted(m.place for m in self.there if m.key == message.key and m.place >= message.place):
                if place - end > self.reach.gap:
                    break
                end = place
            return min(end + 2 * self.reach.gap, message.place + self.reach.span + self.reach.gap)
        if self.reach.kind == "sliding":
            return self.reach.last(other, self.reach.last(message.side, message.place))
        places = range(message.place, message.place + 2 * self.reach.size)
        return max(self.reach.last(other, p) for p in places if self.reach.partners(message.place, p, ()))

    def judged(self, given: Iterable[Given]) -> Result:
        """Say of each message what becomes of it; the refused have no number."""
        result = Result()
        for one in given:
            if one.key is None or (self.by_time and one.time < self.expired):
                result.dead.append(one)
                continue
            self.numbers[one.side, one.partition] += 1
            number = self.numbers[one.side, one.partition]
            place = one.time if self.by_time else number
            message = Message(one.side, one.key, one.time, one.partition * PARTITION + number, place)
            is_late = self.by_time and self.reach.last(one.side, place) < self.watermark - self.grace
            (result.late if is_late else result.accepted).append(message)
        return result

    def policy_of(self, message: Message) -> str:
        """Return the policy that says when a message that a batch brings is due."""
        if self.full is not None:
            return "late" if self.is_full(message) else "full"
        return "late" if self.by_time and message.time < self.watermark else "early"

    def is_full(self, message: Message) -> bool:
        """Say whether the first window that has a message is full, as far as the model has come."""
        return min(last for _, last in self.reach.windows(message.place)) + 1 <= self.full_to

    def go_on(self, early: Any, late: Any, full: Any) -> None:
        """Change the policies from the next batch on."""
        if self.was is None and self.clock is not None:
            self.was = self.early, self.late, self.full
        self.early, self.late, self.full = early, late, full

    def firing(self, clock: int, flush: bool) -> dict[str, bool]:  # noqa: FBT001
        """Say of which policies all messages are due; of all where the policies were changed, but for windows that wait before and after it."""
        changed = self.was not in (None, (self.early, self.late, self.full))
        switched = changed and self.was is not None and (self.was[2] is None or self.full is None)
        self.was = None
        fires = {
            name: changed or self.fires(of, clock, flush) for name, of in (("early", self.early), ("late", self.late))
        }
        return {**fires, "full": switched}

    def fires(self, policy: Literal["batch", "off"] | int, clock: int, flush: bool) -> bool:  # noqa: FBT001
        """Say whether a policy fires: of a period, where the clock has passed a multiple of it."""
        if policy == "batch" or flush:
            return True
        if policy == "off":
            return False
        return self.clock is not None and clock // policy > self.clock // policy

    def pairs(self, beyond: float) -> Iterable[tuple[str, int, int]]:
        """Yield all pairs of messages that are due and not beyond a place."""
        there = [message for message in self.due if message.place >= beyond]
        for left in (m for m in there if m.side == "left"):
            for right in (m for m in there if m.side == "right" and m.key == left.key):
                places = (m.place for m in there if m.key == left.key)
                if self.reach.partners(left.place, right.place, places) and {left, right} not in self.apart:
                    yield left.key, left.position, right.position

    def advance(self, accepted: Sequence[Message], clock: int) -> None:
        """Move the watermark: to the least of the sides, but for those that have been silent for longer than idle."""
        sides: tuple[Side, Side] = ("left", "right")
        for side in sides:
            times = [m.time for m in accepted if m.side == side]
            self.reached[side] = max([self.reached[side], *times])
            self.seen[side] = clock if times else self.seen.get(side, clock)
        active = [self.reached[side] for side in sides if clock - self.seen[side] <= self.idle]
        self.watermark = max(self.watermark, min(active, default=BEFORE_ALL))
        self.clock = clock
        self.expired = max(self.expired, self.kept, self.watermark - self.retention)
        self.full_to = max(self.full_to, self.watermark - (self.grace if self.full == "close" else 0))
        if self.most is not None:
            self.kept = max(self.kept, self.newest(accepted, self.most))

    def newest(self, accepted: Sequence[Message], most: int) -> float:
        """Return where the cells begin in which the newest `most` messages lie, or fewer; none after what may have partners.

        A side's messages of a batch that lie further back than the retention from its newest aren't counted.
        """
        length = max(self.least, self.retention // 64)
        for side in ("left", "right"):
            times = [m.time for m in accepted if m.side == side]
            self.counted += [t - t % length for t in times if t >= max(times) - self.retention]
        self.counted = sorted(start for start in self.counted if start >= self.expired)
        cut = BEFORE_ALL
        there = self.counted
        while len(there) > most:
            there = [start for start in there if start > there[0]]
            cut = min(there[0] if there else self.watermark, self.watermark - self.least)
        return cut


_SLIDING = "l.place between r.place - $left and r.place + $right"
_GRID = """exists (
  select 1 from range(-400, 400) as grid(n)
  where $offset + n * $advance <= least(l.place, r.place) and greatest(l.place, r.place) < $offset + n * $advance + $size
)"""
_SESSION = "l.session = r.session and abs(l.place - r.place) <= $span"


def joined(reach: Reach, messages: Sequence[Message], how: str = "inner") -> set[tuple[str, int, int]]:
    """Return all pairs of some messages, in SQL; `how` is inner, left, right or full, and a missing position 0."""
    schema = pa.schema([("side", pa.string()), ("key", pa.string()), ("position", pa.int64()), ("place", pa.int64())])
    rows: list[dict[str, Any]] = [{name: getattr(m, name) for name in schema.names} for m in messages]
    condition = {"sliding": _SLIDING, "session": _SESSION}.get(reach.kind, _GRID)
    names = [name for name in ("left", "right", "offset", "advance", "size", "span", "gap") if f"${name}" in condition]
    query = f"""
      with marked as (
        select *, place - lag(place) over (partition by key order by place) > $gap as breaks from given
      ), told as (
        select *, count(*) filter (where breaks) over (partition by key order by place) as session from marked
      )
      select coalesce(l.key, r.key), coalesce(l.position, 0), coalesce(r.position, 0)
      from (from told where side = 'left') as l {how} join (from told where side = 'right') as r
      on l.key = r.key and {condition}"""
    with duckdb.connect() as db:
        db.register("given", pa.Table.from_pylist(rows, schema=schema))
        found = db.execute(query, {name: getattr(reach, name) for name in {*names, "gap"}}).fetchall()
    assert len(found) == len(set(found))
    return set(found)
