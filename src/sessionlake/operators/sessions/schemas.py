"""The schemas of the tables of sessions."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from sessionlake.operators.sessions.changelog import SESSIONS, STORED
from sessionlake.warehouse.schemas import BATCH_MARKS, OPEN_UNTIL_FIELD, TIME, commented, date_comment

IDENTITY = ["session_key", "session_start"]
"""The columns that name a session."""
_SESSION = (
    commented("session_key", pa.string(), "The key whose events the session groups"),
    commented("session_start", TIME, "Time of the first event, inclusive"),
    commented("session_end", TIME, "Time of the last event, inclusive"),
)
_SESSION_ID = commented(
    "session_id", pa.int64(), "xxhash64(session_key, session_start): stable while the session starts there"
)
_COUNT_REVISION = (
    commented("event_count", pa.int64(), "Events in the session; 0 in a delete"),
    commented("revision", pa.int64(), "batch_id of the session's last change"),
)
_STATE = commented("state", pa.binary(), "Packed aggregate states; what a restore and a merge need beyond the values")

_SENDING = (
    commented("trigger", pa.string(), "Why it was sent: early, full, late, restate (docs/emission.md); null of others"),
    commented("emitted_at", TIME, "The clock of the batch that sent the row"),
)
_STORED_ID = commented(STORED.id, pa.int64(), "xxhash64(stored_session_key, stored_session_start)")
_MARKED = commented(
    "state",
    pa.binary(),
    "How far sessions were full before the last change, the starts that are shown, and packed states",
)


def _values(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str]) -> Iterable[pa.Field]:
    return (commented(name, type_, specs.get(name, name)) for name, type_ in aggregates.items())


def changes(
    aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str], *, until: bool = False, sent: bool = False
) -> pa.Schema:
    """Return the schema of a shard's changes; the table adds session_id, batch_id and commit_id.

    `until`: with open_until. `sent`: of sessions that are sent by policy.
    """
    op = commented(
        "op", pa.string(), "upsert, delete, or emit (an event beyond retention, aggregated alone, not stored)"
    )
    return pa.schema([op, *_columns(aggregates, specs, [], until=until, sent=sent)])


def changelog(
    aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str], *, until: bool = False, sent: bool = False
) -> pa.Schema:
    """Return the schema of session_changelog, the truth."""
    return pa.schema([*changes(aggregates, specs, until=until, sent=sent), _SESSION_ID, *BATCH_MARKS])


def snapshot(
    aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str], *, until: bool = False, sent: bool = False
) -> pa.Schema:
    """Return the schema of the snapshot and of sessions_live."""
    named = [_SESSION_ID, commented(SESSIONS.date, pa.date32(), date_comment(SESSIONS.start))]
    return pa.schema(_columns(aggregates, specs, named, until=until, sent=sent))


def _columns(
    aggregates: Mapping[str, pa.DataType],
    specs: Mapping[str, str],
    named: Iterable[pa.Field],
    *,
    until: bool,
    sent: bool,
) -> list[pa.Field]:
    more = [OPEN_UNTIL_FIELD] if until else []
    return [
        *_SESSION,
        *more,
        *named,
        *_COUNT_REVISION,
        *(_SENDING if sent else []),
        *_values(aggregates, specs),
        *([] if sent else [_STATE]),
    ]


def stored_changes(*, until: bool) -> pa.Schema:
    """Return the schema of a shard's changes of stored sessions; the table adds their id, batch_id and commit_id."""
    return pa.schema([commented("op", pa.string(), "upsert, delete"), *_stored_columns(until=until)])


def stored_changelog(*, until: bool) -> pa.Schema:
    """Return the schema of stored_session_changelog, from which stores are restored."""
    return pa.schema([*stored_changes(until=until), _STORED_ID, *BATCH_MARKS])


def stored_snapshot(*, until: bool) -> pa.Schema:
    """Return the schema of stored_sessions."""
    date = commented(STORED.date, pa.date32(), date_comment(STORED.start))
    return pa.schema([*_stored_columns(until=until), _STORED_ID, date])


def _stored_columns(*, until: bool) -> list[pa.Field]:
    names = (STORED.key, STORED.start, STORED.end)
    fields = [field.with_name(name) for field, name in zip(_SESSION, names, strict=True)]
    return [*fields, *([OPEN_UNTIL_FIELD] if until else []), *_COUNT_REVISION, _MARKED]


TOPIC_TOMBSTONES = pa.schema(
    [
        commented("correction_id", pa.string(), "As dead_letters names it if it was stale"),
        commented("key", pa.string(), "Key of the session"),
        commented("start_time", TIME, "Start of the session"),
        commented("revision", pa.int64(), "Revision that the session had to be at"),
        *BATCH_MARKS,
    ]
)
