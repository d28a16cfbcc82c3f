"""Every Prometheus metric by name: kind, meaning, labels, and the sources that have it.

The stream and the exporter of tables use one name for the same figure. So `max by (pipeline)` is right if either of the two is scraped.
"""

from dataclasses import dataclass
from typing import Literal

BUCKETS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds in seconds; a batch takes from a quarter of a second to, with 1M events and a restore, minutes."""


@dataclass(frozen=True)
class Metric:
    """A metric's name, kind, meaning and labels; each has the label `pipeline` first."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ("pipeline",)
    sources: tuple[Literal["stream", "tables", "job"], ...] = ("tables",)


def _labels(*names: str) -> tuple[str, ...]:
    return ("pipeline", *names)


BATCHES = Metric("sessionlake_batches_total", "counter", "Micro-batches committed", sources=("stream", "tables"))
INPUT_EVENTS = Metric(
    "sessionlake_input_events_total", "counter", "Events read by committed batches", sources=("stream", "tables")
)
EVENTS = Metric(
    "sessionlake_events_total",
    "counter",
    "Events by outcome: accepted, late, dead, dropped, emitted, filtered, duplicate; their sum is input_events",
    _labels("outcome"),
    ("stream", "tables"),
)
CORRECTIONS = Metric(
    "sessionlake_corrections_total",
    "counter",
    "Corrections by outcome: applied, stale, expired, malformed",
    _labels("outcome"),
    ("stream", "tables"),
)
CHANGES = Metric(
    "sessionlake_session_changes_total",
    "counter",
    "Rows written to session_changelog, by op: upsert, delete",
    _labels("op"),
    ("stream", "tables"),
)
VALUES_BEYOND = Metric(
    "sessionlake_values_beyond_total",
    "counter",
    "Values of written rows that are null because a sum of whole numbers is beyond 64 bits, since the stream started",
    sources=("stream",),
)
QUARANTINED = Metric(
    "sessionlake_quarantined_sessions_total",
    "counter",
    "Sessions that batches moved above a threshold of [quarantine], since the stream started",
    sources=("stream",),
)
TABLE_ROWS = Metric(
    "sessionlake_table_rows", "gauge", "Rows of a keyed table with [ttl], as of the last commit", sources=("stream",)
)
EXPIRED_ROWS = Metric(
    "sessionlake_expired_rows_total",
    "counter",
    "Rows of a keyed table, or sessions, that [ttl] removed, by cause: ttl, lru; since the stream started",
    _labels("cause"),
    ("stream",),
)
EXPIRY_SCANNED = Metric(
    "sessionlake_expiry_scanned_rows_total",
    "counter",
    "Rows, sessions and index entries that [ttl] looked at, since the stream started",
    sources=("stream",),
)
EXPIRY_LAG = Metric(
    "sessionlake_expiry_lag_seconds",
    "gauge",
    "Greatest time from the expiry of a removed row to the clock of the last cleanup of [ttl]; 0 if it removed none",
    sources=("stream",),
)
CLEANUP_SECONDS = Metric(
    "sessionlake_cleanup_seconds_total",
    "counter",
    "Time that shards spent on cleanups of [ttl], since the stream started",
    sources=("stream",),
)
CLEANUP_ROUND = Metric(
    "sessionlake_cleanup_round_seconds",
    "gauge",
    "Pattern time_boxed: age, at the clock of the last cleanup, of the oldest round that it continued or ended",
    sources=("stream",),
)
WATERMARK = Metric(
    "sessionlake_watermark_timestamp_seconds",
    "gauge",
    "The largest time of an accepted event; time() minus it is the event-time lag",
    sources=("stream", "tables"),
)
LAST_COMMIT = Metric(
    "sessionlake_last_commit_timestamp_seconds",
    "gauge",
    "When the last micro-batch was committed",
    sources=("stream", "tables"),
)
FOLLOWER_BATCHES = Metric(
    "sessionlake_follower_lag_batches",
    "gauge",
    "Batches that a pipeline behind or a sink (sink.delta) lacks; none if its position can't be read",
    _labels("follower"),
)
FOLLOWER_SECONDS = Metric(
    "sessionlake_follower_lag_seconds",
    "gauge",
    "Time since the first batch was committed that a pipeline behind or a sink lacks; 0 if it lacks none",
    _labels("follower"),
)
FOLLOWER_READABLE = Metric(
    "sessionlake_follower_readable",
    "gauge",
    "1 if the position of a pipeline behind or a sink could be read, else 0",
    _labels("follower"),
)
STORE_BYTES = Metric(
    "sessionlake_store_bytes", "gauge", "Size of the session stores on this machine", sources=("stream", "tables")
)
DISK_FREE = Metric(
    "sessionlake_disk_free_bytes",
    "gauge",
    "Free bytes for this user on the disk of a place of the driver's machine: store, warehouse (if local), temporary",
    _labels("place"),
    ("stream", "tables"),
)
DISK_SIZE = Metric(
    "sessionlake_disk_size_bytes",
    "gauge",
    "Size of the disk of a place of the driver's machine: store, warehouse (if local), temporary",
    _labels("place"),
    ("stream", "tables"),
)
STREAM_START = Metric(
    "sessionlake_stream_start_timestamp_seconds", "gauge", "When the stream's process started it", sources=("stream",)
)
STORES_RESTORED = Metric(
    "sessionlake_stores_restored_total",
    "counter",
    "Shards' stores that were restored from the tables, by cause: missing, corrupt, stale, forgotten, layout",
    _labels("cause"),
    ("stream",),
)
BATCH_SECONDS = Metric(
    "sessionlake_batch_duration_seconds",
    "histogram",
    "Time from the start of a micro-batch to its commit",
    sources=("stream",),
)
PHASE_SECONDS = Metric(
    "sessionlake_trigger_phase_seconds_total",
    "counter",
    "Time that Spark's triggers spent by phase: latestOffset, queryPlanning, getBatch, walCommit, addBatch, commitOffsets",
    _labels("phase"),
    ("stream",),
)
FAILING = Metric(
    "sessionlake_pipeline_failing",
    "gauge",
    "1 from a failure of a run until a trigger of it, or another run, has ended well; else 0",
    sources=("stream", "tables"),
)
LAST_TRIGGER = Metric(
    "sessionlake_last_trigger_timestamp_seconds",
    "gauge",
    "When the stream last looked for input, also if it found none",
    sources=("stream",),
)
OFFSETS_BEHIND = Metric(
    "sessionlake_source_offsets_behind",
    "gauge",
    "Kafka: offsets from the last batch to the topic's end, in the partition that is furthest behind",
    sources=("stream",),
)
RECONCILES = Metric(
    "sessionlake_reconciles",
    "gauge",
    "1 if the counts agree: input with outcomes, late events with rows of tables; else 0",
)
LATE_EVENTS = Metric(
    "sessionlake_late_events",
    "gauge",
    "Rows of late_events by state: reprocessed, expired, waiting (for reprocess-late)",
    _labels("state"),
)
DEAD_LETTERS = Metric(
    "sessionlake_dead_letters",
    "gauge",
    "Rows of dead_letters by reason, without the value that some reasons quote",
    _labels("reason"),
)
SNAPSHOT = Metric(
    "sessionlake_snapshot_timestamp_seconds",
    "gauge",
    "Everything committed before this time is in the table sessions; the time of reading if no change waits to be folded",
)
UNFOLDED_BATCHES = Metric("sessionlake_unfolded_batches", "gauge", "Batches that compaction has not folded yet")
UNFOLDED_CHANGES = Metric(
    "sessionlake_unfolded_changes", "gauge", "Changes of sessions that compaction has not folded yet"
)
TABLE_FILES = Metric("sessionlake_table_files", "gauge", "Files of a table's newest version", _labels("table"))
TABLE_BYTES = Metric("sessionlake_table_bytes", "gauge", "Bytes of a table's newest version", _labels("table"))
FAILED_CHECKS = Metric(
    "sessionlake_quality_failed_checks",
    "gauge",
    "Checks that failed in the last run of quality",
    _labels("table", "severity"),
)
REFRESH = Metric("sessionlake_exporter_refresh_timestamp_seconds", "gauge", "When the exporter last read the tables")
REFRESH_SUCCESS = Metric(
    "sessionlake_exporter_refresh_success",
    "gauge",
    "0 if the exporter could not read the tables the last time: its other values are then older",
)
REFRESH_SECONDS = Metric(
    "sessionlake_exporter_refresh_duration_seconds", "gauge", "How long the exporter's last reading of the tables took"
)
JOB_START = Metric(
    "sessionlake_job_last_start_timestamp_seconds",
    "gauge",
    "When a job's last run started",
    _labels("job_name"),
    ("tables", "job"),
)
JOB_SUCCESS = Metric(
    "sessionlake_job_last_success_timestamp_seconds",
    "gauge",
    "When a job last ended without an error",
    _labels("job_name"),
    ("tables", "job"),
)
JOB_SECONDS = Metric(
    "sessionlake_job_last_run_duration_seconds",
    "gauge",
    "How long a job's last run took, Spark's start included",
    _labels("job_name"),
    ("job",),
)
JOB_OK = Metric(
    "sessionlake_job_last_run_success",
    "gauge",
    "1 if a job's last run ended with exit code 0, else 0",
    _labels("job_name"),
    ("job",),
)
JOB_ITEMS = Metric(
    "sessionlake_job_last_run_items",
    "gauge",
    "Counts of a job's last run, if it reports them: rows, files and bytes read, written, skipped",
    _labels("job_name", "item"),
    ("job",),
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
