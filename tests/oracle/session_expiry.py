"""The time to live of sessions, written from docs/rules.md, rules 170, 171, 177 and 178, on top of `tests/oracle/model.py`."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.oracle.model import Outcome, ReferenceModel, Row, Session

Expired = Callable[[Session, int], bool]


@dataclass
class ExpiringSessions:
    """Sessions of which closed ones expire; `expired` says of one whether it has at a clock."""

    model: ReferenceModel
    expired: Expired
    every: int
    stream: bool = False
    cleaned: int | None = None
    removed_events: int = 0
    """Of all sessions that were removed."""
    lag_from: Callable[[Session], int] | None = None
    """When a session expired, where the rule says it."""
    lag: int | None = None
    """Of the last cleanup."""

    def batch(self, rows: list[Row], clock: int) -> Outcome:
        """Take a batch at a time of the clock."""
        watermark, number = self.model.watermark, self.model.batch_id
        at = watermark if self.stream else clock
        due = at is not None and (self.cleaned is None or at // self.every != self.cleaned // self.every)
        out = self.model.process(rows)
        if not due or at is None:
            return out
        self.cleaned = at
        gone = [session for session in self.model.table.values() if self.goes(session, watermark, number, at)]
        for session in gone:
            del self.model.table[session.name]
            self.removed_events += session.event_count
            out.changes.append({"op": "delete", **self.model.row(session), "revision": number})
        if self.lag_from is not None:
            self.lag = max([0, *(at - self.lag_from(session) for session in gone)])
        out.counts["deletes"] = sum(change["op"] == "delete" for change in out.changes)
        out.counts["deleted_by_ttl"] = len(gone)
        return out

    def goes(self, session: Session, watermark: int | None, number: int, at: int) -> bool:
        """Say whether a session goes: closed and in the store by the watermark before the batch, and none that the batch made."""
        if watermark is None or session.revision == number:
            return False
        closed = session.until < watermark - self.model.grace
        warm = session.until >= watermark - self.model.retention
        return closed and warm and self.expired(session, at)
