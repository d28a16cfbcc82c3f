"""A per-event reference model of docs/rules.md, rules 1 to 8, 160, 161 and 244, slow and plain on purpose.

It keeps every session of all time in one dict, and every session keeps the atoms (events, restated and put partials)
it is made of, so aggregates are recomputed from the atoms each time. It shares no code with sessionlake.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Name = tuple[str, int]
COUNTS = (
    "input",
    "accepted",
    "late",
    "dead",
    "dropped",
    "emitted",
    "corrections",
    "applied",
    "stale",
    "expired",
    "malformed",
)


@dataclass(frozen=True)
class Atom:
    """What is merged: one event, one restated partial or one put partial."""

    key: str
    start: int
    end: int
    event_count: int
    columns: tuple[tuple[str, Any], ...]
    event_id: str | None = None
    until: int = 0

    def column(self, name: str) -> Any:
        return dict(self.columns).get(name)


@dataclass(frozen=True)
class Session:
    key: str
    start: int
    end: int
    revision: int
    atoms: tuple[Atom, ...]

    @property
    def until(self) -> int:
        """The last time at which an event still joins: of all that it is made of the latest."""
        return max(atom.until for atom in self.atoms)

    @property
    def name(self) -> Name:
        return self.key, self.start

    @property
    def event_count(self) -> int:
        return sum(atom.event_count for atom in self.atoms)


@dataclass
class Outcome:
    changes: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    dead: list[Row] = field(default_factory=list)
    stale: list[Row] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


def atom_of(row: Row, start: int, end: int, event_id: str | None = None, until: int = 0) -> Atom:
    reserved = {"key", "time_us", "kind", "start_us", "end_us", "event_count", "remove", "put", "revision"}
    columns = tuple(sorted((name, value) for name, value in row.items() if name not in reserved))
    return Atom(row["key"], start, end, row.get("event_count", 1), columns, event_id, until)


def state_of(aggregate: str, atoms: Iterable[Atom]) -> Any:
    """Return what equal aggregates agree on: more than the value where the value loses something."""
    function, column, other = re.fullmatch(r"(\w+)\((\w*)(?:, ([a-z]\w*))?(?:, [\d.]+)?\)", aggregate).groups()
    if function == "count":
        return sum(atom.event_count for atom in atoms)
    present = [atom for atom in atoms if atom.column(column) is not None]
    values = [atom.column(column) for atom in present]
    by = [(atom.column(other), atom) for atom in atoms if other and atom.column(other) is not None]
    ordered = [(atom.start, atom.event_id or "", atom.column(column)) for atom in present]
    return {
        "sum": lambda: sum(values) if values else None,
        "min": lambda: min(values, default=None),
        "max": lambda: max(values, default=None),
        "avg": lambda: (sum(values), len(values)),
        "first": lambda: min(ordered, default=None),
        "last": lambda: max(ordered, default=None),
        "count_distinct": lambda: frozenset(values),
        "any_value": lambda: min(ordered, default=None),
        "mode": lambda: sorted(Counter(values).items()),
        "max_by": lambda: _at([(-value, atom) for value, atom in by], column),
        "min_by": lambda: _at(by, column),
        "median": lambda: sorted(values),
        "quantile": lambda: sorted(values),
    }[function]()


def _at(by: list[tuple[Any, Atom]], column: str) -> Any:
    """Return the rank, time, id and value of the row that is least by rank, then time, then id."""
    ranked = [(rank, atom.start, atom.event_id or "", atom.column(column)) for rank, atom in by]
    return min(ranked, default=None)


def value_of(aggregate: str, atoms: Iterable[Atom]) -> Any:
    state = state_of(aggregate, atoms)
    function = aggregate.split("(", maxsplit=1)[0]
    if function == "avg":
        return state[0] / state[1] if state[1] else None
    if function in ("first", "last", "any_value", "max_by", "min_by"):
        return state and state[-1]
    if function == "mode":
        return max(state, key=lambda item: (item[1], -item[0]))[0] if state else None
    return _of_all(aggregate, function, state)


def _of_all(aggregate: str, function: str, state: Any) -> Any:
    if function == "count_distinct":
        return len(state)
    if function == "median":
        return statistics.median(state) if state else None
    if function == "quantile":
        return interpolated(state, float(aggregate.rstrip(")").split(",")[1])) if state else None
    return state


def interpolated(ordered: list[float], fraction: float) -> float:
    """Return the value at rank fraction * (n - 1), on the straight line between the two values around it."""
    rank = fraction * (len(ordered) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    return low + (rank - math.floor(rank)) * (high - low)


def meet(one: Atom | Session, other: Atom | Session) -> bool:
    """Say whether one begins while the other is open, whichever comes first."""
    return one.start <= other.until and other.start <= one.until


def distance(one: Atom | Session, other: Atom | Session) -> int:
    """Return how far two closed intervals lie apart; 0 when they touch or overlap."""
    return max(one.start - other.end, other.start - one.end, 0)


def components(members: list[Any], gap: int) -> list[list[Any]]:
    """Return the groups of one key's intervals that belong together transitively, distance <= gap inclusive."""
    return chained(members, lambda one, other: distance(one, other) <= gap)


def chained(members: list[Any], meets: Callable[[Any, Any], bool]) -> list[list[Any]]:
    """Return the groups of what meets, transitively."""
    groups: list[list[Any]] = []
    for member in members:
        touching = [group for group in groups if any(meets(member, other) for other in group)]
        groups = [group for group in groups if not any(group is other for other in touching)]
        groups.append([member, *(other for group in touching for other in group)])
    return groups


class ReferenceModel:
    """Process micro-batches as docs/rules.md says; `table` is what the changelog folds to, cold sessions included."""

    def __init__(
        self,
        gap: int,
        grace: int,
        retention: int,
        aggregates: dict[str, str],
        beyond_retention: str = "dead_letter",
        max_future_skew: int | None = None,
        clock: Callable[[], int] | None = None,
        event_id: str | None = None,
        max_gap: int | None = None,
        gap_column: str | None = None,
        max_length: int | None = None,
        offset: int = 0,
        before: Sequence[tuple[int, int, int | None, int]] = (),
    ) -> None:
        self.before = before
        self.gap, self.grace, self.retention = gap, grace, retention
        self.max_gap, self.gap_column, self.max_length, self.offset = max_gap, gap_column, max_length, offset
        self.aggregates = aggregates
        self.beyond_retention = beyond_retention
        self.max_future_skew, self.clock = max_future_skew, clock
        self.event_id = event_id
        self.watermark: int | None = None
        self.batch_id = 0
        self.table: dict[Name, Session] = {}

    @property
    def close(self) -> float:
        """What is open until a time strictly before it + gap is late."""
        return -math.inf if self.watermark is None else self.watermark - self.grace - self.gap

    @property
    def horizon(self) -> float:
        """What is open until a time strictly before it + gap is cold."""
        return -math.inf if self.watermark is None else self.watermark - self.retention - self.gap

    def is_warm(self, session: Session) -> bool:
        return session.until - self.gap >= self.horizon

    def until(self, end: int, row: Row) -> int:
        """Return until when a partial that ends there is open: a gap on, but not beyond its cell (rules 160, 161 and 244)."""
        until = end + next((gap for cut, gap, _, _ in self.before if end < cut), self.gap_of(row))
        return min(until, self.next_cut(end) - 1)

    def gap_of(self, row: Row) -> int:
        own = None if self.gap_column is None or "kind" in row else row.get(self.gap_column)
        return self.gap if own is None else own

    def next_cut(self, time: int) -> float:
        """Return the first time after one that no session crosses."""
        later = [cut for cut, *_ in self.before if time < cut]
        earlier = [limits for limits in self.before if time < limits[0]]
        length, offset = earlier[0][2:] if earlier else (self.max_length, self.offset)
        grid = math.inf if length is None else time - (time - offset) % length + length
        return min([grid, *later])

    def crosses(self, partial: Row) -> bool:
        return self.next_cut(partial["start_us"]) <= partial["end_us"]

    @property
    def oldest(self) -> float:
        return -math.inf if self.watermark is None else self.watermark - self.retention

    def process(self, rows: list[Row]) -> Outcome:
        out = Outcome()
        events = [row for row in rows if row.get("kind", "event") == "event"]
        corrections = [row for row in rows if row.get("kind", "event") != "event"]
        out.counts["input"], out.counts["corrections"] = len(events), len(corrections)

        events = self._within_contract(events, out)
        events = self._within_gaps(self._within_retention(events, out), out)
        corrections = self._fitting(corrections, out)
        restated = self._restated([row for row in corrections if row["kind"] == "restate"], out)
        removed, put = self._replaced([row for row in corrections if row["kind"] != "restate"], out)

        survivors = {name: session for name, session in self.table.items() if name not in removed}
        visible = [session for session in survivors.values() if self.is_visible(session, put)]
        new_events = [(self._event_atom(row), row) for row in events]
        accepted = self._merge(survivors, visible, new_events, restated + put, out)
        added = {id(atom) for atom in [*(atom for atom, _ in new_events), *restated]}
        formed = {name for name, session in survivors.items() if any(id(atom) in added for atom in session.atoms)}
        self._forward(survivors, formed, out)

        self.table = survivors
        self.batch_id += 1
        times = [row["time_us"] for row in accepted]
        if times:
            self.watermark = max(times) if self.watermark is None else max(self.watermark, *times)
        return out

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        """Say whether a session that is not removed takes part in this batch's merge (docs/rules.md, rules 2 and 7).

        A cold session does when its key has an applied put. That the whole key is handed in and not only "around it"
        makes no difference, see search.py.
        """
        return self.is_warm(session) or any(atom.key == session.key for atom in put)

    def sessions(self) -> list[Row]:
        warm = [session for session in self.table.values() if self.is_warm(session)]
        return [self.row(session) for session in sorted(warm, key=lambda session: session.name)]

    def all_sessions(self) -> list[Row]:
        return [self.row(session) for session in sorted(self.table.values(), key=lambda session: session.name)]

    def row(self, session: Session) -> Row:
        return {
            "key": session.key,
            "start_us": session.start,
            "end_us": session.end,
            "event_count": session.event_count,
            "revision": session.revision,
            "open_until_us": session.until,
            **{name: value_of(aggregate, session.atoms) for name, aggregate in self.aggregates.items()},
        }

    def _within_contract(self, events: list[Row], out: Outcome) -> list[Row]:
        good = []
        for row in events:
            reason = None
            if not row.get("key"):
                reason = "key"
            elif row.get("time_us") is None:
                reason = "time"
            elif self.clock and row["time_us"] > self.clock() + self.max_future_skew:
                reason = "future"
            if reason is None:
                good.append(row)
            else:
                out.dead.append({**row, "reason": reason})
                out.counts["dead"] += 1
        return good

    def _within_retention(self, events: list[Row], out: Outcome) -> list[Row]:
        good = []
        for row in events:
            if row["time_us"] >= self.oldest:
                good.append(row)
            elif self.beyond_retention == "dead_letter":
                out.dead.append({**row, "reason": "retention"})
                out.counts["dead"] += 1
            elif self.beyond_retention == "drop":
                out.counts["dropped"] += 1
            else:
                time = row["time_us"]
                alone = Session(
                    row["key"], time, time, self.batch_id, (atom_of(row, time, time, row.get(self.event_id)),)
                )
                out.changes.append({"op": "emit", **self.row(alone)})
                out.counts["emitted"] += 1
        return good

    def _event_atom(self, row: Row) -> Atom:
        time = row["time_us"]
        return atom_of(row, time, time, row.get(self.event_id), self.until(time, row))

    def _within_gaps(self, events: list[Row], out: Outcome) -> list[Row]:
        most = self.gap if self.max_gap is None else self.max_gap
        good = [row for row in events if 1 <= self.gap_of(row) <= most]
        bad = [row for row in events if not 1 <= self.gap_of(row) <= most]
        out.dead += [{**row, "reason": "gap"} for row in bad]
        out.counts["dead"] += len(bad)
        return good

    def _fitting(self, corrections: list[Row], out: Outcome) -> list[Row]:
        """Refuse what crosses a cut, unless it is expired, which is said first."""
        good = []
        for row in corrections:
            expired = row["kind"] == "restate" and row["start_us"] < self.oldest
            partials = {"restate": [row]}.get(row["kind"], row.get("put", []))
            if not expired and any(self.crosses(partial) for partial in partials):
                out.dead.append({**row, "reason": "crosses"})
                out.counts["malformed"] += 1
            else:
                good.append(row)
        return good

    def _restated(self, rows: list[Row], out: Outcome) -> list[Atom]:
        good = []
        for row in rows:
            if row["start_us"] < self.oldest:
                out.dead.append({**row, "reason": "expired"})
                out.counts["expired"] += 1
            else:
                good.append(atom_of(row, row["start_us"], row["end_us"], None, self.until(row["end_us"], row)))
                out.counts["applied"] += 1
        return good

    def _replaced(self, rows: list[Row], out: Outcome) -> tuple[set[Name], list[Atom]]:
        removed: set[Name] = set()
        put: list[Atom] = []
        for row in rows:
            named = [(row["start_us"], row["revision"])] if row["kind"] == "tombstone" else row["remove"]
            if all(self._is_live(row["key"], start, revision, removed) for start, revision in named):
                removed |= {(row["key"], start) for start, _ in named}
                put += [
                    atom_of(
                        {**partial, "key": row["key"]},
                        partial["start_us"],
                        partial["end_us"],
                        None,
                        self.until(partial["end_us"], row),
                    )
                    for partial in row.get("put", [])
                ]
                out.counts["applied"] += 1
            else:
                out.stale.append(row)
                out.counts["stale"] += 1
        return removed, put

    def _is_live(self, key: str, start: int, revision: int, removed: set[Name]) -> bool:
        session = self.table.get((key, start))
        return session is not None and session.revision == revision and session.name not in removed

    def _merge(
        self,
        survivors: dict[Name, Session],
        visible: list[Session],
        events: list[tuple[Atom, Row]],
        others: list[Atom],
        out: Outcome,
    ) -> list[Row]:
        """Merge into survivors in place; return the accepted events."""
        accepted: list[Row] = []
        # Two equal events are two events: atoms are told apart by identity.
        row_of = {id(atom): row for atom, row in events}
        new = [atom for atom, _ in events] + others
        for key in sorted({atom.key for atom in new}):
            members = [item for item in [*visible, *new] if item.key == key]
            for group in chained(members, meet):
                stored = [item for item in group if isinstance(item, Session)]
                atoms = [item for item in group if isinstance(item, Atom)]
                event_rows = [row_of[id(atom)] for atom in atoms if id(atom) in row_of]
                end = max(item.end for item in group)
                if not atoms:
                    continue
                if len(event_rows) == len(atoms) and max(item.until for item in group) - self.gap < self.close:
                    out.late += event_rows
                    out.counts["late"] += len(event_rows)
                    continue
                accepted += event_rows
                out.counts["accepted"] += len(event_rows)
                for session in stored:
                    del survivors[session.name]
                parts = [*atoms, *(atom for session in stored for atom in session.atoms)]
                merged = Session(key, min(item.start for item in group), end, self.batch_id, tuple(parts))
                if merged.name in survivors:
                    # Only a variant of the rules that misses a neighbour comes here; the real rules can't.
                    del survivors[merged.name]
                survivors[merged.name] = merged
        return accepted

    def _forward(self, after: dict[Name, Session], formed: set[Name], out: Outcome) -> None:
        """Append the changes from `table` to `after`; a session put back unchanged keeps its revision.

        One formed by new events or restates is a change even when its row looks as before: at the old revision a
        correction that was made without them could remove them.
        """
        for name, session in sorted(after.items()):
            before = self.table.get(name)
            if before is not None and name not in formed and self._content(before) == self._content(session):
                after[name] = before
            else:
                out.changes.append({"op": "upsert", **self.row(session)})
        for name in sorted(self.table.keys() - after.keys()):
            out.changes.append({"op": "delete", **self.row(self.table[name]), "revision": self.batch_id})

    def _content(self, session: Session) -> tuple[Any, ...]:
        states = tuple(state_of(aggregate, session.atoms) for aggregate in self.aggregates.values())
        return session.end, session.until, session.event_count, states
