"""The time to live of sessions, written from docs/rules.md, rules 170, 171, 177 and 178, on top of `tests/oracle/model.py`."""

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from tests.oracle.model import Name, Outcome, ReferenceModel, Row, Session

Expired = Callable[[Session, int], bool]


@dataclass
class ExpiringSessions:
    """Sessions of which closed ones expire; `expired` says of one whether it has at a clock, None where there is no [ttl] now."""

    model: ReferenceModel
    expired: Expired | None
    every: int
    stream: bool = False
    cleaned: dict[bool, int] = field(default_factory=dict)
    """When the last cleanup was, by the watermark (True) and by the wall clock."""
    removed_events: int = 0
    """Of all sessions that were removed."""
    lag_from: Callable[[Session], int] | None = None
    """When a session expired, where the rule says it."""
    lag: int | None = None
    """Of the last cleanup."""
    looked: list[Session] | None = None
    """Of the last batch: the sessions that a cleanup may look at; None where none was due."""
    left: list[Session] = field(default_factory=list)
    """Of these, those that have expired and are still there."""

    def batch(self, rows: list[Row], clock: int, most: Container[Name] | None = None) -> Outcome:
        """Take a batch at a time of the clock, of whose expired sessions only those of the names in `most` go, where it is given."""
        watermark, number = self.model.watermark, self.model.batch_id
        at, last = watermark if self.stream else clock, self.cleaned.get(self.stream)
        out = self.model.process(rows)
        self.looked, self.left = None, []
        if at is None or self.expired is None or (last is not None and at // self.every == last // self.every):
            return out
        self.cleaned[self.stream] = at
        self.looked = [s for s in self.model.table.values() if s.revision != number and self.is_warm(s, watermark)]
        expired = [s for s in self.looked if self.is_closed(s, watermark) and self.expired(s, at)]
        gone = [session for session in expired if most is None or session.name in most]
        self.left = [session for session in expired if session not in gone]
        for session in gone:
            del self.model.table[session.name]
            self.removed_events += session.event_count
            out.changes.append({"op": "delete", **self.model.row(session), "revision": number})
        if self.lag_from is not None:
            self.lag = max([0, *(at - self.lag_from(session) for session in gone)])
        out.counts["deletes"] = sum(change["op"] == "delete" for change in out.changes)
        out.counts["deleted_by_ttl"] = len(gone)
        return out

    def is_warm(self, session: Session, watermark: int | None) -> bool:
        """Say whether a session is in the store by a watermark."""
        return watermark is not None and session.until >= watermark - self.model.retention

    def is_closed(self, session: Session, watermark: int | None) -> bool:
        """Say whether no event can change a session by a watermark."""
        return watermark is not None and session.until < watermark - self.model.grace
