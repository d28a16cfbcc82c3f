"""Sessions that are sent by policy, one at a time: written from docs/rules.md, rules 1 to 8 and 260 to 265, in plain Python.

A session has a flag: it has a change that was not sent. It shares no line with the code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = -(10**15)


class Event(NamedTuple):
    """An event; its gap counts if events have gaps of their own."""

    key: str
    time: int
    value: int
    gap: int = 0


class Part(NamedTuple):
    """A partial that a correction restates or puts."""

    key: str
    start: int
    last: int
    value: int


class Replace(NamedTuple):
    """A replacement of a session by others of its key; without others a tombstone."""

    key: str
    start: int
    revision: int
    put: tuple[Part, ...] = ()


class Row(NamedTuple):
    """A row of the changelog of what was sent."""

    op: str
    key: str
    start: int
    last: int = 0
    count: int = 0
    total: int = 0
    trigger: str = ""


@dataclass
class Session:
    """A session and what is known of it by readers."""

    key: str
    start: int
    last: int
    until: int
    count: int
    total: int
    revision: int
    unsent: bool = True
    shown: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The first time at which no event joins it."""
        return self.until + 1


@dataclass
class Outcome:
    """The outcome of a batch."""

    rows: list[Row]
    late: list[Event]
    dead: list[Event]
    stale: int


@dataclass
class EmissionModel:
    """Sessions under policies; `early`: off, batch, or a period; `full`: end, close; `late`: batch, close, or a period.

    `weaker` names a rule that it breaks, to see that the tests would tell.
    """

    gap: int
    grace: int
    retention: int
    early: str | int = "off"
    full: str = "end"
    late: str | int = 10
    own_gaps: bool = False
    max_length: int | None = None
    before: tuple[int, int] | None = None
    """A time that no session crosses, and the gap before it."""
    weaker: str = ""
    sessions: list[Session] = field(default_factory=list)
    watermark: int = NEVER
    reached_full: int = NEVER
    closed: int = NEVER
    expired: int = NEVER
    clock: int | None = None
    batches: int = 0
    changed_policies: bool = False

    def change(self, early: str | int, full: str, late: str | int) -> None:
        """Go on under other policies."""
        self.changed_policies |= self.batches > 0 and (early, full, late) != (self.early, self.full, self.late)
        self.early, self.full, self.late = early, full, late

    def batch(
        self,
        events: Sequence[Event],
        clock: int,
        *,
        restated: Sequence[Part] = (),
        replaced: Sequence[Replace] = (),
        advance: int | None = None,
        flush: bool = False,
    ) -> Outcome:
        """Play a batch."""
        rows: list[Row] = []
        stale, gone, put = self._replaced(replaced)
        for session in gone:
            rows += [Row("delete", session.key, start) for start in session.shown]
        dead = [event for event in events if event.time < self.expired]
        kept = [event for event in events if event.time >= self.expired]
        late = [event for event in kept if self.full == "close" and self._joins_closed(event)]
        if self.weaker == "no rule 264":
            late = []
        rest = [event for event in kept if event not in late]
        parts = [part for part in (*restated, *put) if part in put or part.start >= self.expired]
        late += self._merged(rest, parts)
        accepted = [event.time for event in rest if event not in late]
        full, closed = self._moved(max([*accepted, self.watermark, *([] if advance is None else [advance])]))
        rows += self._sent(full, closed, clock, flush=flush)
        sent = {(row.key, row.start) for row in rows if row.op == "upsert"}
        rows = [row for row in rows if row.op == "upsert" or (row.key, row.start) not in sent]
        self.reached_full, self.closed, self.clock, self.changed_policies = full, closed, clock, False
        self.batches += 1
        return Outcome(sorted(rows), late, dead, stale)

    def _open_until(self, time: int, gap: int) -> int:
        if self.before is not None and time < self.before[0]:
            return min(time + self.before[1], self.before[0] - 1)
        until = time + gap
        return until if self.max_length is None else min(until, (time // self.max_length + 1) * self.max_length - 1)

    def _gap(self, event: Event) -> int:
        return event.gap if self.own_gaps else self.gap

    def _joins_closed(self, event: Event) -> bool:
        until = self._open_until(event.time, self._gap(event))
        return any(
            s.end <= self.closed and s.key == event.key and s.start <= until and event.time <= s.until
            for s in self.sessions
        )

    def _replaced(self, replaced: Sequence[Replace]) -> tuple[int, list[Session], list[Part]]:
        stale, gone, put = 0, list[Session](), list[Part]()
        for one in replaced:
            named = [s for s in self.sessions if (s.key, s.start, s.revision) == (one.key, one.start, one.revision)]
            if named:
                gone += named
                put += one.put
                self.sessions.remove(named[0])
            else:
                stale += 1
        return stale, gone, put

    def _merged(self, events: list[Event], parts: list[Part]) -> list[Event]:
        """Form the sessions anew; return the events that are late."""
        late: list[Event] = []
        left: list[Session] = []
        for key in sorted({s.key for s in self.sessions} | {e.key for e in events} | {p.key for p in parts}):
            items: list[tuple[int, int, int, int, int, object]] = [
                (s.start, s.last, s.until, s.count, s.total, s) for s in self.sessions if s.key == key
            ]
            items += [
                (e.time, e.time, self._open_until(e.time, self._gap(e)), 1, e.value, e) for e in events if e.key == key
            ]
            items += [
                (p.start, p.last, self._open_until(p.last, self.gap), 1, p.value, p) for p in parts if p.key == key
            ]
            items.sort(key=lambda item: item[:2])
            groups: list[list[tuple[int, int, int, int, int, object]]] = []
            for item in items:
                if groups and item[0] <= max(other[2] for other in groups[-1]):
                    groups[-1].append(item)
                else:
                    groups.append([item])
            for group in groups:
                self._form(key, group, left, late)
        self.sessions = left
        return late

    def _form(
        self,
        key: str,
        group: list[tuple[int, int, int, int, int, object]],
        left: list[Session],
        late: list[Event],
    ) -> None:
        of = [item[5] for item in group]
        stored = [one for one in of if isinstance(one, Session)]
        new = [one for one in of if isinstance(one, Event)]
        corrected = any(isinstance(one, Part) for one in of)
        until = max(item[2] for item in group)
        if len(stored) == len(group):
            left += stored
        elif not corrected and until < self.closed:
            left += stored
            late += new
        else:
            shown = {start for one in stored for start in one.shown}
            left.append(
                Session(
                    key,
                    group[0][0],
                    max(item[1] for item in group),
                    until,
                    sum(item[3] for item in group),
                    sum(item[4] for item in group),
                    self.batches,
                    shown=shown,
                )
            )

    def _moved(self, frontier: int) -> tuple[int, int]:
        self.watermark = frontier
        self.expired = max(self.expired, frontier - self.retention)
        closed = max(self.closed, frontier - self.grace, self.expired)
        return max(self.reached_full, frontier if self.full == "end" else closed), closed

    def _ticks(self, policy: str | int, clock: int, *, flush: bool) -> bool:
        if not isinstance(policy, int):
            return policy == "batch"
        if flush or self.changed_policies:
            return True
        return self.clock is not None and clock // policy > self.clock // policy

    def _sent(self, full: int, closed: int, clock: int, *, flush: bool) -> list[Row]:
        early, late = (self._ticks(policy, clock, flush=flush) for policy in (self.early, self.late))
        rows: list[Row] = []
        for s in self.sessions:
            if s.end > self.reached_full and s.end <= full:
                trigger = "full"
            elif not s.unsent:
                trigger = ""
            elif s.end <= self.closed:
                trigger = "restate"
            elif s.end <= self.reached_full:
                trigger = "late" if late or s.end <= closed else ""
            else:
                trigger = "early" if early else ""
            if self.weaker == "full only of changes" and not s.unsent:
                trigger = ""
            if trigger:
                rows.append(Row("upsert", s.key, s.start, s.last, s.count, s.total, trigger))
                rows += [Row("delete", s.key, start) for start in s.shown if start != s.start]
                s.unsent, s.shown = False, {s.start}
        return rows
