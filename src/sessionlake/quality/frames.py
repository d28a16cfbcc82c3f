"""What is checked: each table at its pinned version, with the few columns that checks across rows need."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.jobs.run import was_forgotten
from sessionlake.operators.sessions.setup import build_spec
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.quality.neighbours import crowded, repeated
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.outcomes import told_from
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import merged_rows, read_batches, row_versions

SECOND_US = 1_000_000
NULL_KEY = ("null key", "empty key")
_READ = (
    schemas.SESSIONS,
    schemas.CHANGELOG,
    schemas.LATE_EVENTS,
    schemas.DEAD_LETTERS,
    schemas.CORRECTIONS,
    schemas.CORRECTION_OUTCOMES,
)


@dataclass(frozen=True)
class Checked:
    """A table as the checks see it."""

    frame: DataFrame
    columns: dict[str, str]
    """The columns that should be there, with their types as Spark names them."""
    version: str
    """Versions of what was read, as name@version."""


@dataclass(frozen=True)
class Inputs:
    """The pinned inputs of a run."""

    tables: Tables
    config: Config
    pinned: dict[str, Any]
    now_us: int

    def table(self, name: str) -> DataFrame:
        """Return a table at its pinned version."""
        return self.tables.read(name, self.pinned["versions"][name])

    def has(self, name: str) -> bool:
        """Say whether the table was there; in a warehouse of an earlier release one may be missing."""
        return bool(self.pinned["versions"].get(name, -1) >= 0)

    def committed(self, name: str) -> DataFrame:
        """Return a side table's rows of committed batches; rows of a batch that is under way don't count yet."""
        return self.table(name).where(F.col("batch_id") <= self.pinned["batch_id"])

    def version(self, *names: str) -> str:
        """Return the versions of tables as text."""
        return ", ".join(f"{name}@{self.pinned['versions'][name]}" for name in names)

    @cached_property
    def changelog_rows(self) -> int:
        """Rows of the changelog now: about as many as are checked."""
        return self.tables.rows(schemas.CHANGELOG)

    def spec(self) -> SessionizerSpec:
        """Return the pipeline's aggregates and their types, as pinned by its first commit."""
        return build_spec(self.tables.spark, self.config, self.pinned["types"])


def pin(tables: Tables) -> dict[str, Any]:
    """Return versions of all inputs that belong together: those of the changelog up to one commit, the rest not older."""
    versions = {name: tables.latest_version(name) for name in _READ if name != schemas.CHANGELOG}
    changelog = tables.latest_version(schemas.CHANGELOG)
    last = last_batch(tables)
    return {
        # A batch may have been committed between the two look-ups.
        "versions": {**versions, schemas.CHANGELOG: max(changelog, last.version)},
        "batch_id": last.batch_id,
        "committed_us": last.committed_us,
        "types": dict(last.settings.types),
        "forgotten": was_forgotten(tables),
    }


def events(inputs: Inputs) -> Checked:
    """Return what became of the events, a row a batch, beside how many rows the side tables hold of it.

    `outcome_rows` is null for batches of releases that had no correction_outcomes.
    """
    dead = inputs.committed(schemas.DEAD_LETTERS).where("kind = 'event'")
    no_key = F.count_if(F.col("reason").isin(*NULL_KEY))
    batches = batches_of(inputs)
    names = batches.columns
    joined = (
        batches.join(inputs.committed(schemas.LATE_EVENTS).groupBy("batch_id").agg(F.count("*").alias("_late")), "batch_id", "left")
        .join(dead.groupBy("batch_id").agg(F.count("*").alias("_dead"), no_key.alias("_no_key")), "batch_id", "left")
        .join(_outcomes(inputs), "batch_id", "left")
    )  # fmt: skip
    age_us = F.lit(inputs.now_us) - F.unix_micros("committed_at")
    recent_us = inputs.pinned["committed_us"] - parse_duration(inputs.config.quality.rates_over)
    added = {
        "late_rows": F.coalesce("_late", F.lit(0)).cast("bigint"),
        "dead_rows": F.coalesce("_dead", F.lit(0)).cast("bigint"),
        "null_keys": F.coalesce("_no_key", F.lit(0)).cast("bigint"),
        "outcome_rows": F.when(F.col("batch_id") >= told_from(inputs.tables), F.coalesce("_outcomes", F.lit(0))).cast(
            "bigint"
        ),
        "previous_watermark": F.lag("watermark").over(Window.orderBy("batch_id")),
        "age_seconds": age_us / SECOND_US,
        "recent": F.unix_micros("committed_at") >= recent_us,
    }
    columns = _types(schemas.BATCHES_SCHEMA) | {
        **dict.fromkeys(("late_rows", "dead_rows", "null_keys", "outcome_rows"), "bigint"),
        "previous_watermark": "timestamp",
        "age_seconds": "double",
        "recent": "boolean",
    }
    frame = joined.select(*names, *(column.alias(name) for name, column in added.items()))
    told = [schemas.CORRECTION_OUTCOMES] if inputs.has(schemas.CORRECTION_OUTCOMES) else []
    version = inputs.version(schemas.CHANGELOG, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, *told)
    return Checked(frame, columns, version)


def _outcomes(inputs: Inputs) -> DataFrame:
    """Return how many rows correction_outcomes has of each batch."""
    if not inputs.has(schemas.CORRECTION_OUTCOMES):
        return inputs.tables.spark.createDataFrame([], "batch_id bigint, _outcomes bigint")
    rows = inputs.committed(schemas.CORRECTION_OUTCOMES)
    return rows.groupBy("batch_id").agg(F.count("*").alias("_outcomes"))


def batches_of(inputs: Inputs) -> DataFrame:
    """Return the batches up to the pinned one."""
    return read_batches(inputs.tables).where(F.col("batch_id") <= inputs.pinned["batch_id"])


def session_changelog(inputs: Inputs) -> Checked:
    """Return the changelog; repeated, the same in each row, counts changes beyond the first of one key, start and batch."""
    changes = inputs.table(schemas.CHANGELOG)
    twice = repeated(inputs.tables, changes, inputs.changelog_rows)
    frame = changes.withColumns({"has_state": F.col("state").isNotNull(), "repeated": F.lit(twice).cast("bigint")})
    columns = _types(schemas.changelog(inputs.spec().value_types, {}))
    added = {"has_state": "boolean", "repeated": "bigint"}
    return Checked(frame, columns | added, inputs.version(schemas.CHANGELOG))


def sessions(inputs: Inputs) -> Checked:
    """Return sessions_live; two counts over all of it are the same in each row.

    too_near counts sessions that begin within the gap after the key's session before, doubled those of which the
    snapshot has more than one row.
    """
    versions = {f"{n}_version": inputs.pinned["versions"][t] for n, t in _MERGED.items()}
    columns = _types(schemas.sessions(inputs.spec().value_types, {}))
    added = {"has_state": "boolean", "too_near": "bigint", "doubled": "bigint"}
    version = inputs.version(schemas.SESSIONS, schemas.CHANGELOG)
    try:
        live = merged_rows(inputs.tables, **versions)
        everything = row_versions(inputs.tables, **versions)
    except AnalysisException:
        # Columns that differ can't be merged; the check of the schema says which.
        return Checked(inputs.table(schemas.SESSIONS), columns | added, version)
    rows = inputs.tables.rows(schemas.SESSIONS) + inputs.changelog_rows
    near, doubled = crowded(inputs.tables, everything, rows, inputs.config.gap_us)
    counts = {"too_near": near, "doubled": doubled}
    frame = live.withColumn("has_state", F.col("state").isNotNull())
    return Checked(
        frame.withColumns({name: F.lit(value).cast("bigint") for name, value in counts.items()}),
        columns | added,
        version,
    )


def late_events(inputs: Inputs) -> Checked:
    """Return the late events of committed batches."""
    columns = _types(schemas.late_events(inputs.spec().input_types))
    return Checked(inputs.committed(schemas.LATE_EVENTS), columns, inputs.version(schemas.LATE_EVENTS))


_MERGED = {"snapshot": schemas.SESSIONS, "changelog": schemas.CHANGELOG}
FRAMES: dict[str, Callable[[Inputs], Checked]] = {
    schemas.EVENTS: events,
    schemas.CHANGELOG: session_changelog,
    schemas.SESSIONS: sessions,
    schemas.LATE_EVENTS: late_events,
}


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in spark_schema(schema).fields}
