"""Schemas of all tables and of what workers and driver exchange. All times are UTC, microseconds."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from sessionlake.config import names

TIME = pa.timestamp("us", "UTC")
IDENTITY = ["session_key", "session_start"]
"""What names a session."""
SESSION_DATE = "session_date"
SESSION_DATE_COMMENT = "UTC date of session_start; files hold whole dates, and the log has their bounds"
YEAR_1_US, YEAR_9999_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond that Python has a date for; no session lies outside."""
COLUMN_TYPES = {
    "long": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": TIME,
    "date": pa.date32(),
}
"""The types that a user may name for an event's column."""

CHANGELOG = "session_changelog"
SESSIONS = "sessions"
LATE_EVENTS = "late_events"
DEAD_LETTERS = "dead_letters"
CORRECTIONS = "corrections"
BATCHES = "batches"
EVENTS = names.EVENTS
TOPIC_TOMBSTONES = "topic_tombstones"
JOB_RUNS = "job_runs"
QUALITY_RESULTS = "quality_results"
REDEEMED = "redeemed"
TABLES = (
    CHANGELOG,
    SESSIONS,
    LATE_EVENTS,
    DEAD_LETTERS,
    CORRECTIONS,
    BATCHES,
    EVENTS,
    TOPIC_TOMBSTONES,
    JOB_RUNS,
    QUALITY_RESULTS,
    REDEEMED,
)
"""All tables of a warehouse; some come with a setting or with a job's first run."""
SESSIONS_LIVE = "sessions_live"
"""The view over snapshot and changelog."""

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
    "upserts",
    "deletes",
)
"""What a batch counts: events in, and what became of them; corrections in, and what became of them; changes out."""


def _field(name: str, type_: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, type_, metadata={"comment": comment})


_SESSION = (
    _field("session_key", pa.string(), "The key whose events the session groups"),
    _field("session_start", TIME, "Time of the first event, inclusive"),
    _field("session_end", TIME, "Time of the last event, inclusive"),
)
_SESSION_ID = _field(
    "session_id", pa.int64(), "xxhash64(session_key, session_start): stable while the session starts there"
)
_COUNT_REVISION = (
    _field("event_count", pa.int64(), "Events in the session; 0 in a delete"),
    _field("revision", pa.int64(), "batch_id of the session's last change"),
)
_STATE = _field("state", pa.binary(), "Packed aggregate states; what a restore and a merge need beyond the values")
_BATCH = (
    _field("batch_id", pa.int64(), "Micro-batch that wrote the row"),
    _field("commit_id", pa.string(), "Attempt of the micro-batch that wrote the row"),
)


def _values(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str]) -> Iterable[pa.Field]:
    return (_field(name, type_, specs.get(name, name)) for name, type_ in aggregates.items())


def changes(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str]) -> pa.Schema:
    """Return the schema of what a shard forwards; the table adds session_id, batch_id and commit_id."""
    op = _field("op", pa.string(), "upsert, delete, or emit (an event beyond retention, aggregated alone, not stored)")
    return pa.schema([op, *_SESSION, *_COUNT_REVISION, *_values(aggregates, specs), _STATE])


def changelog(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str]) -> pa.Schema:
    """Return the schema of session_changelog, the truth."""
    return pa.schema([*changes(aggregates, specs), _SESSION_ID, *_BATCH])


def sessions(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str]) -> pa.Schema:
    """Return the schema of the snapshot and of sessions_live."""
    date = _field(SESSION_DATE, pa.date32(), SESSION_DATE_COMMENT)
    return pa.schema([*_SESSION, _SESSION_ID, date, *_COUNT_REVISION, *_values(aggregates, specs), _STATE])


def _event(inputs: Mapping[str, pa.DataType]) -> Iterable[pa.Field]:
    event = pa.struct([pa.field(name, type_) for name, type_ in inputs.items()] or [pa.field("none", pa.bool_())])
    yield _field("session_key", pa.string(), "The event's key")
    yield _field("event_time", TIME, "The event's time")
    yield _field("event_id", pa.string(), "The event's id, where the config names one")
    yield _field("event", event, "The columns that aggregates read")


def events(inputs: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of the archive: events that were accepted or late."""
    return pa.schema([*_event(inputs), *_BATCH])


TOPIC_TOMBSTONES_SCHEMA = pa.schema(
    [
        _field("correction_id", pa.string(), "As dead_letters names it if it was stale"),
        _field("session_key", pa.string(), "Key of the session"),
        _field("session_start", TIME, "Start of the session"),
        _field("revision", pa.int64(), "Revision that the session had to be at"),
        *_BATCH,
    ]
)


def late_events(inputs: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of late_events: past grace, within retention."""
    return pa.schema(
        [
            *_event(inputs),
            _field("raw", pa.string(), "The row as it came"),
            _field("source", pa.string(), "Where it came from: file and row"),
            _field("close_time", TIME, "The session it would have been part of ended before this time"),
            *_BATCH,
        ]
    )


DEAD_LETTERS_SCHEMA = pa.schema(
    [
        _field("reason", pa.string(), "Why the row was refused"),
        _field("kind", pa.string(), "event, restate, replace or tombstone"),
        _field("session_key", pa.string(), "The key, as far as it could be read"),
        _field("event_time", TIME, "The time, as far as it could be read"),
        _field("raw", pa.string(), "The row as it came"),
        _field("source", pa.string(), "Where it came from: file and row, or correction"),
        *_BATCH,
    ]
)

_PUT = pa.struct([("session_start", TIME), ("session_end", TIME), ("event_count", pa.int64()), ("state", pa.binary())])
CORRECTIONS_SCHEMA = pa.schema(
    [
        _field(
            "correction_id",
            pa.string(),
            "Unique; where two corrections of a batch name one session, the lower id has it",
        ),
        _field(
            "kind", pa.string(), "restate, replace, tombstone, or advance (moves the watermark, to close what is open)"
        ),
        _field("session_key", pa.string(), "Key of the session"),
        _field(
            "session_start",
            TIME,
            "restate: start of the partial; tombstone: start of the session; advance: the new watermark",
        ),
        _field("session_end", TIME, "restate: end of the partial, inclusive"),
        _field("event_count", pa.int64(), "restate: events in the partial"),
        _field("revision", pa.int64(), "tombstone: revision that the session must still be at"),
        _field("state", pa.binary(), "restate: packed aggregate states"),
        _field(
            "remove",
            pa.list_(pa.struct([("session_start", TIME), ("revision", pa.int64())])),
            "replace: sessions that go",
        ),
        _field("put", pa.list_(_PUT), "replace: partials that come"),
        _field("job", pa.string(), "The job that wrote the correction"),
        _field("run_id", pa.string(), "The run of that job"),
        _field("created_at", TIME, "When it was written"),
    ]
)

BATCHES_SCHEMA = pa.schema(
    [
        *_BATCH,
        _field("started_at", TIME, "When the batch began"),
        _field("committed_at", TIME, "When the changelog commit was made"),
        _field("watermark", TIME, "Watermark after the batch; null before the first accepted event"),
        *(_field(name, pa.int64(), f"Rows: {name}") for name in COUNTS),
        _field("changelog_version", pa.int64(), "Version of session_changelog that the batch's commit made"),
    ]
)

JOB_RUNS_SCHEMA = pa.schema(
    [
        _field("job", pa.string(), "reprocess_late, redeem, expire, forget, compact, backfill or quality"),
        _field("run_id", pa.string(), "Name of the run; attempts of one run share it"),
        _field("event", pa.string(), "started (by the first attempt) or finished"),
        _field("at", TIME, "When the run started or finished"),
        _field("arguments", pa.string(), "JSON: what the run was asked"),
        _field("pinned", pa.string(), "JSON: versions of the inputs, which later attempts of the run use too"),
        _field(
            "counts", pa.string(), "JSON: rows read, written, skipped, and what else the job counts; null in started"
        ),
    ]
)

REDEEMED_SCHEMA = pa.schema(
    [
        _field(
            "letter", pa.string(), "The dead letter: hash of its batch, source and text, and a number among those alike"
        ),
        _field("batch_id", pa.int64(), "Micro-batch that refused it"),
        _field("outcome", pa.string(), "redeemed, or duplicates (another letter of the same event_id was redeemed)"),
        _field("run_id", pa.string(), "The run of redeem; its marks count once its corrections are in their table"),
    ]
)

QUALITY_RESULTS_SCHEMA = pa.schema(
    [
        _field("run_id", pa.string(), "The run of quality"),
        _field("table", pa.string(), "The suite's table: events, session_changelog, sessions or late_events"),
        _field("version", pa.string(), "Versions of the Delta tables that were read, as name@version"),
        _field("name", pa.string(), "The check's name; of a standard expectation its type"),
        _field("expectation", pa.string(), "The expectation's type in Great Expectations"),
        _field("column", pa.string(), "The column it is about, where it is about one"),
        _field("severity", pa.string(), "critical, warning or info"),
        _field("success", pa.bool_(), "Whether it held"),
        _field("observed", pa.string(), "JSON: what was observed, or the error that kept it from being evaluated"),
        _field("unexpected_count", pa.int64(), "Rows that break it; null where it is not about rows"),
        _field("at", TIME, "When the run started: the time against which freshness is measured"),
    ]
)
