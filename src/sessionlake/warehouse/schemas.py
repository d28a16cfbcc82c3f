"""Schemas of all tables and of what workers and driver exchange. All times are UTC, microseconds."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

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
CORRECTION_OUTCOMES = "correction_outcomes"
BATCHES = "batches"
EVENTS = names.EVENTS
TOPIC_TOMBSTONES = "topic_tombstones"
JOB_RUNS = "job_runs"
QUALITY_RESULTS = "quality_results"
REDEEMED = "redeemed"
JOIN_MESSAGES = "join_messages"
"""The state's changelog of a join."""
SIDE = "side"
"""The column of dead letters, and of late events, that says which of two inputs they are of."""
PARTLY = "partly"
"""The column of late events that were accepted too, where an event may be late for some of what it is part of."""
SHARED = (
    LATE_EVENTS,
    DEAD_LETTERS,
    CORRECTIONS,
    CORRECTION_OUTCOMES,
    BATCHES,
    EVENTS,
    TOPIC_TOMBSTONES,
    JOIN_MESSAGES,
    JOB_RUNS,
    QUALITY_RESULTS,
    REDEEMED,
)
"""The tables of any pipeline beside its changelogs and their snapshots; some come with an operator, a setting or a job's first run."""
SIDES = (EVENTS, TOPIC_TOMBSTONES, JOIN_MESSAGES, LATE_EVENTS, DEAD_LETTERS, CORRECTION_OUTCOMES)
"""The tables that a batch writes before the changelog: they may hold rows of a batch that is not committed yet."""

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
PER_INPUT = ("input", "accepted", "late", "dead", "dropped")
"""What of it commits count for each of several inputs, too: input is the sum of the others."""
QUARANTINED = "quarantined"
"""What commits count beside those: sessions that a batch moved above a threshold of [quarantine]."""


def count_of(name: str, side: str) -> str:
    """Return how commits call a count of one of several inputs."""
    return f"{name}:{side}"


# A batch of one message asks for its schemas as often as one of many.
@lru_cache(maxsize=1024)
def commented(name: str, type_: pa.DataType, comment: str) -> pa.Field:
    """Return a column with a comment, which the table shows."""
    return pa.field(name, type_, metadata={"comment": comment})


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
OPEN_UNTIL = "open_until"
"""The column that tells until when a session takes events, where that does not follow from its end."""
_OPEN_UNTIL = commented(OPEN_UNTIL, TIME, "Last time at which an event still joins the session, inclusive")
BATCH_MARKS = (
    commented("batch_id", pa.int64(), "Micro-batch that wrote the row"),
    commented("commit_id", pa.string(), "Attempt of the micro-batch that wrote the row"),
)


def _values(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str]) -> Iterable[pa.Field]:
    return (commented(name, type_, specs.get(name, name)) for name, type_ in aggregates.items())


def changes(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str], *, until: bool = False) -> pa.Schema:
    """Return the schema of what a shard forwards; the table adds session_id, batch_id and commit_id. `until`: with open_until."""
    op = commented(
        "op", pa.string(), "upsert, delete, or emit (an event beyond retention, aggregated alone, not stored)"
    )
    more = [_OPEN_UNTIL] if until else []
    return pa.schema([op, *_SESSION, *more, *_COUNT_REVISION, *_values(aggregates, specs), _STATE])


def changelog(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str], *, until: bool = False) -> pa.Schema:
    """Return the schema of session_changelog, the truth."""
    return pa.schema([*changes(aggregates, specs, until=until), _SESSION_ID, *BATCH_MARKS])


def sessions(aggregates: Mapping[str, pa.DataType], specs: Mapping[str, str], *, until: bool = False) -> pa.Schema:
    """Return the schema of the snapshot and of sessions_live."""
    more = [_OPEN_UNTIL] if until else []
    date = commented(SESSION_DATE, pa.date32(), SESSION_DATE_COMMENT)
    return pa.schema([*_SESSION, *more, _SESSION_ID, date, *_COUNT_REVISION, *_values(aggregates, specs), _STATE])


def _event(inputs: Mapping[str, pa.DataType]) -> Iterable[pa.Field]:
    event = pa.struct([pa.field(name, type_) for name, type_ in inputs.items()] or [pa.field("none", pa.bool_())])
    yield commented("session_key", pa.string(), "The event's key")
    yield commented("event_time", TIME, "The event's time")
    yield commented("event_id", pa.string(), "The event's id, where the config names one")
    yield commented("event", event, "The columns that aggregates read")


def events(inputs: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of the archive: events that were accepted or late."""
    return pa.schema([*_event(inputs), *BATCH_MARKS])


TOPIC_TOMBSTONES_SCHEMA = pa.schema(
    [
        commented("correction_id", pa.string(), "As dead_letters names it if it was stale"),
        commented("session_key", pa.string(), "Key of the session"),
        commented("session_start", TIME, "Start of the session"),
        commented("revision", pa.int64(), "Revision that the session had to be at"),
        *BATCH_MARKS,
    ]
)


def late_events(inputs: Mapping[str, pa.DataType], more: Iterable[pa.Field] = ()) -> pa.Schema:
    """Return the schema of late_events: past grace, within retention; `more` are an operator's own columns."""
    return pa.schema(
        [
            *_event(inputs),
            commented("raw", pa.string(), "The row as it came"),
            commented("source", pa.string(), "Where it came from: file and row"),
            commented("close_time", TIME, "The session it would have been part of ended before this time"),
            *more,
            *BATCH_MARKS,
        ]
    )


DEAD_LETTERS_SCHEMA = pa.schema(
    [
        commented("reason", pa.string(), "Why the row was refused"),
        commented("kind", pa.string(), "event, restate, replace or tombstone"),
        commented("session_key", pa.string(), "The key, as far as it could be read"),
        commented("event_time", TIME, "The time, as far as it could be read"),
        commented("raw", pa.string(), "The row as it came"),
        commented("source", pa.string(), "Where it came from: file and row, or correction"),
        *BATCH_MARKS,
    ]
)

SIDE_FIELD = commented(SIDE, pa.string(), "Of two inputs the one: left, right; null of corrections")
_PUT = [("session_start", TIME), ("session_end", TIME), ("event_count", pa.int64()), ("state", pa.binary())]
CORRECTIONS_SCHEMA = pa.schema(
    [
        commented(
            "correction_id",
            pa.string(),
            "Unique; where two corrections of a batch name one session, the lower id has it",
        ),
        commented(
            "kind",
            pa.string(),
            "restate, replace, tombstone, advance (moves the watermark), tick (makes a batch) or flush (sends what waits)",
        ),
        commented("session_key", pa.string(), "Key of the session"),
        commented(
            "session_start",
            TIME,
            "restate: start of the partial; tombstone: start of the session; advance: the new watermark",
        ),
        commented("session_end", TIME, "restate: end of the partial, inclusive"),
        commented("event_count", pa.int64(), "restate: events in the partial"),
        commented("revision", pa.int64(), "tombstone: revision that the session must still be at"),
        commented("state", pa.binary(), "restate: packed aggregate states"),
        commented(
            "remove",
            pa.list_(pa.struct([("session_start", TIME), ("revision", pa.int64())])),
            "replace: sessions that go",
        ),
        commented("put", pa.list_(pa.struct(_PUT)), "replace: partials that come"),
        commented("job", pa.string(), "The job that wrote the correction"),
        commented("run_id", pa.string(), "The run of that job"),
        commented("created_at", TIME, "When it was written"),
    ]
)


def corrections(*, until: bool = False) -> pa.Schema:
    """Return the schema of corrections; `until`: with open_until of restates and of what is put, null where it follows from the end."""
    if not until:
        return CORRECTIONS_SCHEMA
    put = CORRECTIONS_SCHEMA.field("put").with_type(pa.list_(pa.struct([*_PUT, (OPEN_UNTIL, TIME)])))
    return CORRECTIONS_SCHEMA.set(CORRECTIONS_SCHEMA.get_field_index("put"), put).append(_OPEN_UNTIL)


APPLIED, STALE, EXPIRED, MALFORMED = "applied", "stale", "expired", "malformed"
"""What becomes of a correction; each is also one of COUNTS."""
CORRECTION_OUTCOMES_SCHEMA = pa.schema(
    [
        commented("correction_id", pa.string(), "The correction's, as it came"),
        commented("kind", pa.string(), "The correction's, as it came"),
        commented("session_key", pa.string(), "The correction's, as it came"),
        commented("event_count", pa.int64(), "restate: events in the partial"),
        commented("job", pa.string(), "The job that wrote the correction; null for a topic's"),
        commented("run_id", pa.string(), "The run of that job"),
        commented(
            "outcome",
            pa.string(),
            "applied; stale (a session that it names is gone or at another revision); expired (beyond retention); or "
            "malformed (it lacks something, or goes too far)",
        ),
        commented("reason", pa.string(), "Why it was refused, as dead_letters has it; null where it was applied"),
        commented("at", TIME, "The clock of the batch that took it"),
        *BATCH_MARKS,
    ]
)
"""One row for each row of the control input that a batch took, and for each tombstone of a topic."""


def batches(more: Iterable[str] = ()) -> pa.Schema:
    """Return the schema of the table batches; `more` is what a pipeline's batches count beside COUNTS."""
    return pa.schema(
        [
            *BATCH_MARKS,
            commented("started_at", TIME, "When the batch began"),
            commented("committed_at", TIME, "When the changelog commit was made"),
            commented("watermark", TIME, "Watermark after the batch; null before the first accepted event"),
            *(commented(name, pa.int64(), f"Rows: {name}") for name in (*COUNTS, *more)),
            commented("changelog_version", pa.int64(), "Version of session_changelog that the batch's commit made"),
        ]
    )


BATCHES_SCHEMA = batches()
"""That of pipelines which count no more."""

JOB_RUNS_SCHEMA = pa.schema(
    [
        commented("job", pa.string(), "The job, as docs/commands.md lists them, with _ for -"),
        commented("run_id", pa.string(), "Name of the run; attempts of one run share it"),
        commented("event", pa.string(), "started (by the first attempt) or finished"),
        commented("at", TIME, "When the run started or finished"),
        commented("arguments", pa.string(), "JSON: what the run was asked"),
        commented("pinned", pa.string(), "JSON: versions of the inputs, which later attempts of the run use too"),
        commented(
            "counts", pa.string(), "JSON: rows read, written, skipped, and what else the job counts; null in started"
        ),
    ]
)

REDEEMED_SCHEMA = pa.schema(
    [
        commented(
            "letter", pa.string(), "The dead letter: hash of its batch, source and text, and a number among those alike"
        ),
        commented("batch_id", pa.int64(), "Micro-batch that refused it"),
        commented("outcome", pa.string(), "redeemed, or duplicates (another letter of the same event_id was redeemed)"),
        commented("run_id", pa.string(), "The run of redeem; its marks count once its corrections are in their table"),
    ]
)

QUALITY_RESULTS_SCHEMA = pa.schema(
    [
        commented("run_id", pa.string(), "The run of quality"),
        commented("table", pa.string(), "The suite's table: events, session_changelog, sessions or late_events"),
        commented("version", pa.string(), "Versions of the Delta tables that were read, as name@version"),
        commented("name", pa.string(), "The check's name; of a standard expectation its type"),
        commented("expectation", pa.string(), "The expectation's type in Great Expectations"),
        commented("column", pa.string(), "The column it is about, where it is about one"),
        commented("severity", pa.string(), "critical, warning or info"),
        commented("success", pa.bool_(), "Whether it held"),
        commented("observed", pa.string(), "JSON: what was observed, or the error that kept it from being evaluated"),
        commented("unexpected_count", pa.int64(), "Rows that break it; null where it is not about rows"),
        commented("at", TIME, "When the run started: the time against which freshness is measured"),
    ]
)
