"""The tables of sessions."""

from functools import cache

import pyarrow as pa

from sessionlake.operators.sessions.changelog import SESSIONS, STORED
from sessionlake.warehouse.changelog import STATE, Changelog
from sessionlake.warehouse.row_table import INT64, VALUES, Column, Role, RowTable
from sessionlake.warehouse.schemas import BATCH_MARKS, OPEN_UNTIL, OPEN_UNTIL_COMMENT, TIME, commented

STORED_ROWS = "stored_sessions"
"""Name of the changes of stored sessions among the outputs of a shard."""
_SENDING = (
    Column("trigger", pa.string(), "Why it was sent: early, full, late, restate (docs/emission.md); null of others"),
    Column("emitted_at", TIME, "The clock of the batch that sent the row", Role.CLOCK),
)
_STATE = Column(STATE, pa.binary(), "Packed aggregate states; what a restore and a merge need beyond the values")
_MARKED = Column(
    STATE,
    pa.binary(),
    "How far sessions were full before the last change, the starts that are shown, and packed states",
)
_DATE = "; files hold whole dates, and the log has their bounds"


@cache
def tables_of(*, until: bool, sent: bool) -> tuple[RowTable, ...]:
    """Return the tables in the order of their commits: with `sent`, if sessions are sent by policy, first the stored ones.

    `until`: with open_until.
    """
    sessions = RowTable(
        SESSIONS,
        _columns(SESSIONS, *(_SENDING if sent else ()), VALUES, *(() if sent else (_STATE,)), until=until),
        "sessions",
        op="upsert, delete, or emit (an event beyond retention, aggregated alone, not stored)",
        hashed=(SESSIONS.start,),
        notes={SESSIONS.id: ": stable while the session starts there", SESSIONS.date: _DATE},
        named_after=OPEN_UNTIL if until else SESSIONS.end,
    )
    if not sent:
        return (sessions,)
    columns = _columns(STORED, _MARKED, until=until)
    stored = RowTable(
        STORED, columns, "the stored sessions", STORED_ROWS, hashed=(STORED.start,), notes={STORED.date: _DATE}
    )
    return stored, sessions


def _columns(of: Changelog, *more: Column | None, until: bool) -> tuple[Column | None, ...]:
    return (
        Column(of.key, pa.string(), "The key whose events the session groups", Role.KEY),
        Column(of.start, TIME, "Time of the first event, inclusive"),
        Column(of.end, TIME, "Time of the last event, inclusive"),
        *([Column(OPEN_UNTIL, TIME, OPEN_UNTIL_COMMENT)] if until else []),
        Column("event_count", INT64, "Events in the session; 0 in a delete", Role.COUNT),
        # A VALUE, and not the REVISION of the row: a row that is replaced has that of its last change.
        Column("revision", INT64, "batch_id of the session's last change"),
        *more,
    )


TOPIC_TOMBSTONES = pa.schema(
    [
        commented("correction_id", pa.string(), "As dead_letters names it if it was stale"),
        commented("key", pa.string(), "Key of the session"),
        commented("start_time", TIME, "Start of the session"),
        commented("revision", INT64, "Revision that the session had to be at"),
        *BATCH_MARKS,
    ]
)
