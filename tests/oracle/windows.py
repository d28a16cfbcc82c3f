"""Windows by time, three times over, none of it in slices: a machine per window, DuckDB SQL, and what Kafka Streams does.

`WindowModel` says what each batch sends, `final_windows` what each window holds in the end, `KafkaSliding` what Kafka's
SlidingWindows would forward. They share no code with sessionlake. Times are whole numbers of any one unit. `close` is the
bound that a batch is judged by: a window whose exclusive end is at or before it takes no more events.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Kind = Literal["tumbling", "hopping", "sliding"]
Event = tuple[str, int, int]
BEFORE_ALL = -math.inf


class Row(NamedTuple):
    """A window as it was sent; `end` is exclusive, for sliding windows inclusive, as in the tables."""

    key: str
    start: int
    end: int
    count: int
    sum: int
    trigger: str


@dataclass
class Result:
    """What became of a batch: `accepted` holds the partly late events too, `expired` the restated ones that were refused.

    `close` is what the batch's events were judged by, None before the first watermark.
    """

    close: int | None
    rows: list[Row] = field(default_factory=list)
    accepted: list[Event] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    partly_late: list[Event] = field(default_factory=list)
    dead: list[Event] = field(default_factory=list)
    dropped: list[Event] = field(default_factory=list)
    expired: list[Event] = field(default_factory=list)


@dataclass
class Entry:
    """An event that was taken in, with the close of its batch; a restated one comes before any close."""

    event: Event
    close: float

    @property
    def time(self) -> int:
        return self.event[1]


@dataclass
class Window:
    """The machine of one window: `waiting` came in range when it was closed, `unsent` is set by a change while it is open.

    What kind of change is unsent needs no mark: a window is sent whenever it becomes full, changed or not, so that what is
    unsent of a current window came early, of a past one late. `corrected` lasts for one batch.
    """

    key: str
    start: int
    end: int
    content: list[Entry] = field(default_factory=list)
    waiting: list[Entry] = field(default_factory=list)
    unsent: bool = False
    corrected: bool = False

    def holds(self, event: Event) -> bool:
        return self.key == event[0] and self.start <= event[1] < self.end

    def take(self, entry: Entry) -> None:
        (self.content if entry.close < self.end else self.waiting).append(entry)


@dataclass
class WindowModel:
    """Play batches of events to one explicit machine per window.

    `retention` is `retention`, `beyond_retention` "dead_letter" or "drop", `early` "off", "batch" or a period,
    `full` "end" or "close", `late` "batch", "close" or a period. `offset` moves the grid, `tick_offset` the ticks. `keep` is
    `retention_count`: events are let go of by whole cells, as long as a window or a 64th of the retention.
    """

    kind: Kind
    size: int
    advance: int = 0
    offset: int = 0
    grace: int = 0
    retention: int = 10**15
    early: Literal["off", "batch"] | int = "off"
    full: Literal["end", "close"] = "end"
    late: Literal["batch", "close"] | int = "batch"
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    exits: bool = True
    tick_offset: int = 0
    keep: int | None = None

    def __post_init__(self) -> None:
        if self.full == "close" and "batch" in (self.early, self.late):
            raise ValueError('full = "close" sends a window once: early and late can\'t be "batch"')
        if self.kind != "hopping":
            self.advance = self.size
        self.length = self.size + (self.kind == "sliding")
        self.watermark: float = BEFORE_ALL
        self.expired: float = BEFORE_ALL
        self.kept: float = BEFORE_ALL
        self.times: list[int] = []
        self.clock: int | None = None
        self.windows: dict[tuple[str, int], Window] = {}
        self.entries: defaultdict[str, list[Entry]] = defaultdict(list)

    def batch(
        self, events: Iterable[Event], clock: int, restated: Iterable[Event] = (), advance: int | None = None
    ) -> Result:
        """Process one batch; without events it is a tick. `restated` are late events, `advance` moves the watermark."""
        beyond, close = self.expired, self.close()
        result = Result(None if close == BEFORE_ALL else int(close))
        self.judge(events, beyond, close, result)
        restated = list(restated)
        horizon = beyond - self.length
        result.expired = [event for event in restated if self.slice_start(event) < horizon]
        corrections = [Entry(event, BEFORE_ALL) for event in restated if event not in result.expired]
        self.enter([Entry(event, close) for event in result.accepted], corrections, close, horizon)
        times = [event[1] for event in result.accepted] + ([] if advance is None else [advance])
        passed = self.watermark if self.full == "end" else close
        self.watermark = max([self.watermark, *times])
        self.expired = max(self.expired, self.kept, self.watermark - self.retention)
        self.times += [event[1] for event in result.accepted]
        self.let_go()
        frontier = self.watermark if self.full == "end" else self.close()
        early, late = self.ticks(self.early, clock), self.ticks(self.late, clock)
        updates = self.early == self.late == "batch"
        self.clock = clock
        for window in sorted(self.windows.values(), key=lambda window: (window.key, window.start)):
            trigger = None
            if window.end <= close:
                trigger = "restate" if window.corrected else None
            elif passed < window.end <= frontier and (window.unsent or not updates):
                trigger = "full"
            elif not window.unsent:
                trigger = None
            elif window.end > frontier:
                trigger = "early" if early else None
            elif late or window.end <= self.close():
                trigger = "late"
            if trigger:
                result.rows.append(self.send(window, trigger))
        return result

    def close(self) -> float:
        return max(self.watermark - min(self.grace, self.retention), self.expired)

    def let_go(self) -> None:
        """Move what is kept from the next batch on: the oldest cells go while they and later ones have too many events."""
        cell = max(self.length, self.retention // 64)
        starts = sorted(time - time % cell for time in self.times)
        left = [start for start in starts if start >= self.expired]
        while self.keep is not None and len(left) > self.keep:
            oldest = left[0]
            left = [start for start in left if start > oldest]
            self.kept = max(self.kept, min(left[0] if left else self.watermark, self.watermark - self.length))

    def judge(self, events: Iterable[Event], beyond: float, close: float, result: Result) -> None:
        for event in events:
            starts = self.possible_starts(event[1])
            if event[1] < beyond:
                (result.dead if self.beyond_retention == "dead_letter" else result.dropped).append(event)
            elif starts[0] + self.length <= close:
                result.late.append(event)
            else:
                result.accepted.append(event)
                if starts[-1] + self.length <= close:
                    result.partly_late.append(event)

    def possible_starts(self, time: int) -> Sequence[int]:
        """Return the starts of all windows that can hold an event of this time, the last one first."""
        step = 1 if self.kind == "sliding" else self.advance
        last = time - (time - self.offset) % step
        return range(last, time - self.length, -step)

    def slice_start(self, event: Event) -> int:
        """Return where the stretch of time begins that no window's bound cuts: the horizon takes it as a whole."""
        step = 1 if self.kind == "sliding" else math.gcd(self.size, self.advance)
        return event[1] - (event[1] - self.offset) % step

    def enter(self, accepted: list[Entry], corrections: list[Entry], close: float, horizon: float) -> None:
        """Give the windows their new events, and make those that there are by now."""
        known = {entry.event[:2] for entries in self.entries.values() for entry in entries}
        first = {entry.event[:2] for entry in corrections} - known
        for entry in accepted + corrections:
            self.entries[entry.event[0]].append(entry)
            for window in self.windows.values():
                if window.holds(entry.event):
                    window.take(entry)
        fresh = set()
        for key in {entry.event[0] for entry in accepted + corrections}:
            for start in self.existing_starts(self.entries[key]) - {at for k, at in self.windows if k == key}:
                fresh.add((key, start))
                self.windows[key, start] = window = Window(key, start, start + self.length)
                for entry in self.entries[key]:
                    if window.holds(entry.event):
                        window.take(entry)
        for (key, start), window in self.windows.items():
            new = (key, start) in fresh
            if window.end > close:
                window.unsent |= new or any(window.holds(entry.event) for entry in accepted + corrections)
                continue
            opened = new and self.kind == "sliding" and self.exits and (key, start - 1) in first
            changed = opened or any(window.holds(entry.event) for entry in corrections)
            window.corrected = changed and self.is_whole(window, horizon)

    def existing_starts(self, entries: list[Entry]) -> set[int]:
        """Return the starts of the windows that one key's events make, those of sliding ones as Kafka defines them."""
        times = {entry.time for entry in entries}
        if self.kind != "sliding":
            return {start for time in times for start in self.possible_starts(time)}
        left = {time + 1 for time in times if any(0 < other - time <= self.length for other in times)}
        return {time - self.size for time in times} | (left if self.exits else set())

    def is_whole(self, window: Window, horizon: float) -> bool:
        """Tell whether all that makes this window lies at or above the horizon."""
        kept = [entry for entry in self.entries[window.key] if self.slice_start(entry.event) >= horizon]
        return window.start >= horizon and window.start in self.existing_starts(kept)

    def ticks(self, policy: str | int, clock: int) -> bool:
        if isinstance(policy, str):
            return policy == "batch"
        if self.clock is None:
            return False
        return (clock - self.tick_offset) // policy > (self.clock - self.tick_offset) // policy

    def send(self, window: Window, trigger: str) -> Row:
        if trigger == "restate":
            window.content, window.waiting = window.content + window.waiting, []
        window.unsent = window.corrected = False
        values = [entry.event[2] for entry in window.content]
        end = window.end - (self.kind == "sliding")
        return Row(window.key, window.start, end, len(values), sum(values), trigger)


# A window takes the events whose batches it was open for: its exclusive end was above their close.
GRID_SQL = """
WITH placed AS (
    SELECT key, value, "close", time, time - ((time - $offset) % $advance + $advance) % $advance AS last_start
    FROM accepted
),
held AS (
    SELECT key, value, "close", unnest(generate_series(last_start, time - $size + 1, -$advance)) AS start FROM placed
)
SELECT key, start, start + $size AS "end", count(*) AS count, sum(value)::BIGINT AS sum
FROM held WHERE "close" IS NULL OR start + $size > "close"
GROUP BY key, start ORDER BY key, start
"""

# The first kind of window is there when an event came to its very end while it was open; the second, what is left when
# an event has dropped out, is open whenever that event is accepted at all.
SLIDING_SQL = """
WITH windows AS (
    SELECT key, time - $size AS start FROM accepted WHERE "close" IS NULL OR time + 1 > "close"
    UNION
    SELECT key, time + 1 FROM accepted WHERE $exits
)
SELECT w.key, start, start + $size AS "end", count(*) AS count, sum(value)::BIGINT AS sum
FROM windows AS w JOIN accepted AS a
    ON a.key = w.key AND time BETWEEN start AND start + $size AND ("close" IS NULL OR start + $size + 1 > "close")
GROUP BY w.key, start ORDER BY w.key, start
"""


def final_windows(
    con: Any, kind: Kind, size: int, *, advance: int = 0, offset: int = 0, exits: bool = True
) -> list[tuple[str, int, int, int, int]]:
    """Return (key, start, end, count, sum) of every window that `accepted` (batch, key, time, value, close) makes.

    `close` is null for events of batches before the first watermark.
    """
    if kind == "sliding":
        return con.execute(SLIDING_SQL, {"size": size, "exits": exits}).fetchall()
    settings = {"size": size, "advance": advance if kind == "hopping" else size, "offset": offset}
    return con.execute(GRID_SQL, settings).fetchall()


@dataclass
class Stored:
    """A window in Kafka's store, with the time of its newest event."""

    count: int = 0
    sum: int = 0
    newest: int = 0


class KafkaSliding:
    """What Kafka Streams forwards for each record under SlidingWindows(size, grace), updates not cached.

    Written from the behaviour of KStreamSlidingWindowAggregate (4.0.0-SNAPSHOT of October 2024, the way it takes with a
    store that can be read backwards). Kafka reads no events, only windows: what a new window holds it takes from a
    neighbour, which is wrong where that neighbour was closed before it had all. Times are at least `size`: below, Kafka
    keeps one window [0, size]. Its store never expires here.
    """

    def __init__(self, size: int, grace: int) -> None:
        self.size, self.grace = size, grace
        self.stream_time: float = BEFORE_ALL
        self.store: defaultdict[str, dict[int, Stored]] = defaultdict(dict)

    def process(self, event: Event) -> list[tuple[str, int, int, int, int]] | None:
        """Return (key, start, end inclusive, count, sum) of what is forwarded; None for a record skipped as late."""
        key, time, value = event
        if time < self.size:
            raise ValueError(f"time {time} is below the size {self.size}, where Kafka has windows of another kind")
        self.stream_time = max(self.stream_time, time)
        close = self.stream_time - self.grace
        if time + self.size < close:
            return None
        windows = self.store[key]
        found = {start: windows[start] for start in sorted(windows) if time - 2 * self.size <= start <= time}
        holding = [start for start in found if start + self.size >= time]
        ending, before = found.get(time - self.size), [start for start in found if start + self.size < time]
        later = max((start for start in holding if start + self.size > time), default=None)
        # `found` keeps the windows as they were before this event: `update` puts new ones into the store.
        forwarded = []

        def update(start: int, window: Stored) -> None:
            if start + self.size < close:
                return
            newest = max(window.newest, time) if window.count else time
            windows[start] = Stored(window.count + 1, window.sum + value, newest)
            forwarded.append((key, start, start + self.size, window.count + 1, window.sum + value))

        for start in holding:
            update(start, found[start])
        if ending is not None and ending.newest >= time:
            return forwarded
        left = found[before[-1]] if before else None
        source = left or ending
        previous = source.newest if source else None
        if previous is not None and previous + 1 not in found and previous + 1 + self.size >= time:
            update(previous + 1, Stored())
        if ending is None:
            near = left is not None and time - self.size <= left.newest
            update(time - self.size, Stored(left.count, left.sum, time) if near else Stored())
        if later is not None and found[later].newest > time and time + 1 not in windows:
            windows[time + 1] = right = found[later]
            forwarded.append((key, time + 1, time + 1 + self.size, right.count, right.sum))
        return forwarded


def kafka_sliding(
    events: Iterable[Event], size: int, grace: int
) -> Iterator[list[tuple[str, int, int, int, int]] | None]:
    """Yield what `KafkaSliding.process` returns for each event."""
    kafka = KafkaSliding(size, grace)
    return (kafka.process(event) for event in events)
