"""Schemas of all tables, and of the rows that workers and driver exchange. All times are UTC, in microseconds."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import pyarrow as pa

from sessionlake.config import names

TIME = pa.timestamp("us", "UTC")
YEAR_1_US, YEAR_9999_US = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last microsecond that Python has a date for; no session lies outside."""

CHANGELOG = "session_changelog"
SESSIONS = "sessions"
LATE_EVENTS = "late_events"
DEAD_LETTERS = "dead_letters"
CORRECTIONS = "corrections"
CORRECTION_OUTCOMES = "correction_outcomes"
BATCHES = "batches"
EVENTS = names.EVENTS
SOURCE_ROWS = names.SOURCE_ROWS
TOPIC_TOMBSTONES = "topic_tombstones"
JOB_RUNS = "job_runs"
QUALITY_RESULTS = "quality_results"
REDEEMED = "redeemed"
EVENT_IDS = "event_ids"
DUPLICATES = "duplicates"
REPLACED_ROWS = "replaced_rows"
JOIN_MESSAGES = "join_messages"
"""The state's changelog of a join."""
SIDE = "side"
"""The column of dead letters, and of late events, with the name of the input, of two."""
PARTLY = "partly"
"""The column that says whether a late event was accepted too. An event may be late for only some of its windows."""
SHARED = (
    LATE_EVENTS,
    DEAD_LETTERS,
    CORRECTIONS,
    CORRECTION_OUTCOMES,
    BATCHES,
    EVENTS,
    SOURCE_ROWS,
    TOPIC_TOMBSTONES,
    JOIN_MESSAGES,
    JOB_RUNS,
    QUALITY_RESULTS,
    REDEEMED,
    EVENT_IDS,
    DUPLICATES,
    REPLACED_ROWS,
)
"""The tables of any pipeline besides its changelogs and their snapshots. Some exist only with an operator or a setting, or
after a job's first run."""
SIDES = (
    SOURCE_ROWS,
    EVENTS,
    EVENT_IDS,
    DUPLICATES,
    TOPIC_TOMBSTONES,
    JOIN_MESSAGES,
    LATE_EVENTS,
    DEAD_LETTERS,
    CORRECTION_OUTCOMES,
    REPLACED_ROWS,
)
"""The tables that a batch writes before the changelog: they may hold rows of an uncommitted batch."""

OUTCOMES = ("accepted", "late", "dead", "dropped", "emitted", "filtered", "duplicate")
"""The outcomes of an event, each a batch's count: their sum is `input`."""
ADDED_COUNTS = frozenset({"filtered", "duplicate"})
"""Counts that tables of earlier releases lack. They come when a config first needs them; until then they are 0."""
COUNTS = (
    "input",
    *OUTCOMES,
    "corrections",
    "applied",
    "stale",
    "expired",
    "malformed",
    "upserts",
    "deletes",
)
"""A batch's counts: events in and their outcomes, corrections in and their outcomes, changes out."""
PER_INPUT = ("input", "accepted", "late", "dead", "dropped", "filtered", "duplicate")
"""The counts that commits also have for each input, if there are several: input is the sum of the others."""
QUARANTINED = "quarantined"
"""A further count of commits: sessions that a batch moved above a threshold of [quarantine]."""


def count_of(name: str, side: str) -> str:
    """Return the name of an input's count in commits, for several inputs."""
    return f"{name}:{side}"


# A small batch asks for its schemas as often as a large one.
@lru_cache(maxsize=1024)
def commented(name: str, type_: pa.DataType, comment: str) -> pa.Field:
    """Return a column with a comment, which the table shows."""
    return pa.field(name, type_, metadata={"comment": comment})


OPEN_UNTIL = "open_until"
"""The column with the time until which a session takes events, if its end does not determine this."""
OPEN_UNTIL_COMMENT = "Last time at which an event still joins the session, inclusive"
BATCH_MARKS = (
    commented("batch_id", pa.int64(), "Micro-batch that wrote the row"),
    commented("commit_id", pa.string(), "Attempt of the micro-batch that wrote the row"),
)


def date_comment(start: str) -> str:
    """Return the comment of a snapshot's column of dates."""
    return f"UTC date of {start}; files hold whole dates, and the log has their bounds"


def with_key_columns(schema: pa.Schema, key: str, names: Iterable[str]) -> pa.Schema:
    """Return the schema of rows with a text column for each column of their key, after the column `key`."""
    at = schema.get_field_index(key) + 1
    parts = [commented(name, pa.string(), f"The column {name} of the key") for name in names]
    return pa.schema([*list(schema)[:at], *parts, *list(schema)[at:]])


NO_COLUMN = "none"
"""The only field of the struct `event` while no column is read: a struct needs a field."""


def _event(inputs: Mapping[str, pa.DataType]) -> Iterable[pa.Field]:
    event = pa.struct([pa.field(name, type_) for name, type_ in inputs.items()] or [pa.field(NO_COLUMN, pa.bool_())])
    yield commented("key", pa.string(), "The event's key")
    yield commented("event_time", TIME, "The event's time")
    yield commented("event_id", pa.string(), "The event's id, where the config names one")
    yield commented("event", event, "The columns that aggregates read")


def events(inputs: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return the schema of the archive: events that were accepted or late."""
    return pa.schema([*_event(inputs), *BATCH_MARKS])


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


SOURCE_ROWS_SCHEMA = pa.schema(
    [
        commented("key", pa.string(), "The key, as far as it could be read"),
        commented("event_time", TIME, "The time; the batch's clock if it could not be read"),
        commented("kind", pa.string(), "json: the row as it came; texts: a JSON object of the texts of its columns"),
        commented("raw", pa.string(), "The row with all its columns, never cut; null of a record without a value"),
        commented(
            "record",
            pa.struct([("key", pa.string()), ("timestamp", TIME), ("partition", pa.int64()), ("offset", pa.int64())]),
            "Of a topic: key, time and place of the record",
        ),
        *BATCH_MARKS,
    ]
)
"""Rows as they came, also rows for which `where` is not true; a part of the archive."""


def event_ids(*, sided: bool) -> pa.Schema:
    """Return the schema of event_ids and of duplicates; `sided` says that each row names its input."""
    return pa.schema(
        [
            commented("key", pa.string(), "The event's key"),
            commented("event_time", TIME, "The event's time"),
            commented("id_hash", pa.int64(), "Hash of input, key and event_id under the secret of the pipeline"),
            *([SIDE_FIELD] if sided else []),
            *BATCH_MARKS,
        ]
    )


DEAD_LETTERS_SCHEMA = pa.schema(
    [
        commented("reason", pa.string(), "Why the row was refused"),
        commented("kind", pa.string(), "event, restate, replace or tombstone"),
        commented("key", pa.string(), "The key, as far as it could be read"),
        commented("event_time", TIME, "The time, as far as it could be read"),
        commented("raw", pa.string(), "The row as it came"),
        commented("source", pa.string(), "Where it came from: file and row, or correction"),
        *BATCH_MARKS,
    ]
)

SIDE_FIELD = commented(SIDE, pa.string(), "Of two inputs the one: left, right; null of corrections")
_PUT = [("start_time", TIME), ("end_time", TIME), ("event_count", pa.int64()), ("state", pa.binary())]
CORRECTIONS_SCHEMA = pa.schema(
    [
        commented(
            "correction_id",
            pa.string(),
            "Unique; if two corrections of a batch name one row, the one with the lower id takes effect",
        ),
        commented(
            "kind",
            pa.string(),
            "restate, replace, tombstone, advance (moves the watermark), tick (makes a batch) or flush (sends what waits)",
        ),
        commented("key", pa.string(), "Key of the row that it is about"),
        commented(
            "start_time",
            TIME,
            "restate: start of the partial; tombstone: start of the row; advance: the new watermark",
        ),
        commented("end_time", TIME, "restate: end of the partial, inclusive"),
        commented("event_count", pa.int64(), "restate: events in the partial"),
        commented("revision", pa.int64(), "tombstone: revision that the row must still be at"),
        commented(
            "ordinal",
            pa.int64(),
            "Number of a row that no time names: the first of a window by count; a message's position, of a pair the left one's",
        ),
        commented("other_ordinal", pa.int64(), "Position of a pair's right message"),
        commented("source_partition", pa.int64(), "expiry: partition of the record that the row is of"),
        commented("source_offset", pa.int64(), "expiry: offset of that record"),
        commented("state", pa.binary(), "restate: packed aggregate states"),
        commented(
            "remove",
            pa.list_(pa.struct([("start_time", TIME), ("revision", pa.int64())])),
            "replace: rows that go",
        ),
        commented("put", pa.list_(pa.struct(_PUT)), "replace: partials that come"),
        commented("job", pa.string(), "The job that wrote the correction"),
        commented("run_id", pa.string(), "The run of that job"),
        commented("created_at", TIME, "When it was written"),
    ]
)
LAYOUT = "layout"
"""The column of corrections with the layout of their states. The second layout adds it."""
LAYOUT_FIELD = commented(LAYOUT, pa.int64(), "Number of the states' layout, from 0 on; null: the first")

ID_FIELDS = (
    commented("id_time", TIME, "restate of one event that counts once: the event's time"),
    commented("id_hash", pa.int64(), "Its id_hash, as in event_ids; null of others"),
)
"""The columns of corrections that come with `event.unique_for`."""


def corrections(*, until: bool = False, layout: bool = False, ids: bool = False) -> pa.Schema:
    """Return the schema of corrections.

    With `until` it has a column open_until, null if that time follows from the end; with `layout` one that says in which
    layout states are; with `ids` ID_FIELDS.
    """
    schema = CORRECTIONS_SCHEMA
    if until:
        put = schema.field("put").with_type(pa.list_(pa.struct([*_PUT, (OPEN_UNTIL, TIME)])))
        schema = schema.set(schema.get_field_index("put"), put).append(commented(OPEN_UNTIL, TIME, OPEN_UNTIL_COMMENT))
    more = [*([LAYOUT_FIELD] if layout else []), *(ID_FIELDS if ids else [])]
    return pa.schema([*schema, *more])


APPLIED, STALE, EXPIRED, MALFORMED = "applied", "stale", "expired", "malformed"
"""The outcomes of a correction; each is also in COUNTS."""
CORRECTION_OUTCOMES_SCHEMA = pa.schema(
    [
        commented("correction_id", pa.string(), "The correction's, as it came"),
        commented("kind", pa.string(), "The correction's, as it came"),
        commented("key", pa.string(), "The correction's, as it came"),
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
"""A row for each row of the control input that a batch took, and for each tombstone of a topic."""


def batches(more: Iterable[str] = ()) -> pa.Schema:
    """Return the schema of the table batches; `more` has the pipeline's counts besides COUNTS."""
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
