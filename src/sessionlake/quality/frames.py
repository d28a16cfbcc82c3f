"""What is checked: each table at its pinned version, with the few columns that checks across rows need."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.jobs.run import was_forgotten
from sessionlake.operators.registry import kind_of
from sessionlake.quality.neighbours import crowded, repeated
from sessionlake.sources.registry import sources_of
from sessionlake.stream.kind import Kind
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import EXPIRED_EVENTS, JOINS, Changelog
from sessionlake.warehouse.outcomes import told_from
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import merged_rows, read_batches, row_versions

SECOND_US = 1_000_000
NULL_KEY = ("null key", "empty key")
_SHARED = (
    schemas.LATE_EVENTS,
    schemas.DEAD_LETTERS,
    schemas.CORRECTIONS,
    schemas.CORRECTION_OUTCOMES,
    schemas.JOIN_MESSAGES,
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
        return self.tables[name].read(self.pinned["versions"][name])

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
        return self.tables[self.of.changes].rows()

    @property
    def of(self) -> Changelog:
        """How the tables of what the pipeline computes are called."""
        return self.tables.changelog

    @cached_property
    def kind(self) -> Kind:
        """What the pipeline computes, with the columns' types as pinned by its first commit."""
        sources = sources_of(self.tables.spark, self.config)
        return kind_of(self.config).make(self.config, sources, self.pinned["types"])

    def types_of(self, name: str) -> dict[str, str]:
        """Return the columns that a table of the pipeline's own should have."""
        return _types(next(spec.schema for spec in self.kind.tables() if spec.name == name))


def pin(tables: Tables) -> dict[str, Any]:
    """Return versions of all inputs that belong together: those of the changelog up to one commit, the rest not older."""
    of = tables.changelog
    versions = {name: tables[name].latest_version() for name in (of.snapshot, *_SHARED)}
    changelog = tables[of.changes].latest_version()
    last = last_batch(tables)
    return {
        # A batch may have been committed between the two look-ups.
        "versions": {**versions, of.changes: max(changelog, last.version)},
        "batch_id": last.batch_id,
        "committed_us": last.committed_us,
        "types": dict(last.settings.types),
        "forgotten": was_forgotten(tables),
        EXPIRED_EVENTS: last.state.get(EXPIRED_EVENTS, 0),
    }


def events(inputs: Inputs) -> Checked:
    """Return what became of the events, a row a batch, beside how many rows the side tables hold of it.

    `unplaced` are accepted events that are in none of the operator's own counts, `outcome_rows` is null for batches of releases that had no correction_outcomes.
    """
    dead = inputs.committed(schemas.DEAD_LETTERS).where("kind = 'event'")
    no_key = F.count_if(F.col("reason").isin(*NULL_KEY))
    batches = batches_of(inputs)
    names = batches.columns
    joined = (
        batches.join(_late(inputs).where("counted").groupBy("batch_id").agg(F.count("*").alias("_late")), "batch_id", "left")
        .join(dead.groupBy("batch_id").agg(F.count("*").alias("_dead"), no_key.alias("_no_key")), "batch_id", "left")
        .join(_outcomes(inputs), "batch_id", "left")
    )  # fmt: skip
    age_us = F.lit(inputs.now_us) - F.unix_micros("committed_at")
    recent_us = inputs.pinned["committed_us"] - parse_duration(inputs.config.quality.rates_over)
    placed = [F.col(name) for name in inputs.of.counts]
    added = {
        "unplaced": reduce(Column.__sub__, placed, F.col("accepted")) if placed else F.lit(0).cast("bigint"),
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
    columns = _types(schemas.batches(inputs.of.counts)) | {
        **dict.fromkeys(("unplaced", "late_rows", "dead_rows", "null_keys", "outcome_rows"), "bigint"),
        "previous_watermark": "timestamp",
        "age_seconds": "double",
        "recent": "boolean",
    }
    frame = joined.select(*names, *(column.alias(name) for name, column in added.items()))
    told = [schemas.CORRECTION_OUTCOMES] if inputs.has(schemas.CORRECTION_OUTCOMES) else []
    version = inputs.version(inputs.of.changes, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, *told)
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


def changelog(inputs: Inputs) -> Checked:
    """Return the changelog; repeated, the same in each row, counts changes beyond the first of one key, start and batch."""
    changes = inputs.table(inputs.of.changes)
    twice = repeated(inputs.tables, changes, inputs.changelog_rows)
    frame = changes.withColumns({"has_state": _has_state(changes), "repeated": F.lit(twice).cast("bigint")})
    added = {"has_state": "boolean", "repeated": "bigint"}
    return Checked(frame, inputs.types_of(inputs.of.changes) | added, inputs.version(inputs.of.changes))


def latest(inputs: Inputs) -> Checked:
    """Return the latest of each row; counts over all of it are the same in each row.

    doubled counts rows of which the snapshot has more than one; too_near, where rows of a key lie a gap apart, those that
    begin within the gap after the one before.
    """
    of, pinned = inputs.of, inputs.pinned["versions"]
    pins = {"snapshot_version": pinned[of.snapshot], "changelog_version": pinned[of.changes]}
    # Of what `closing_sql` gives a row is open for a gap more.
    gap_us = inputs.kind.suite_values().get("gap_us")
    closing = F.expr(inputs.config.section.closing_sql("unix_micros({})", of.end))
    columns = inputs.types_of(of.snapshot)
    near = {} if gap_us is None else {"too_near": "bigint"}
    added = {"has_state": "boolean", **near, "doubled": "bigint"}
    version = inputs.version(of.snapshot, of.changes)
    try:
        live = merged_rows(inputs.tables, **pins, deleted=of.keyed)
        everything = row_versions(inputs.tables, **pins)
    except AnalysisException:
        # Columns that differ can't be merged; the check of the schema says which.
        return Checked(inputs.table(of.snapshot), columns | added, version)
    rows = inputs.tables[of.snapshot].rows() + inputs.changelog_rows
    crowding, doubled = crowded(inputs.tables, everything, rows, None if gap_us is None else closing + gap_us)
    counts = {**({} if gap_us is None else {"too_near": crowding}), "doubled": doubled}
    frame = live.withColumn("has_state", _has_state(live))
    return Checked(
        frame.withColumns({name: F.lit(value).cast("bigint") for name, value in counts.items()}),
        columns | added,
        version,
    )


def _has_state(rows: DataFrame) -> Column:
    """Say which rows have aggregate states; none where states are kept apart."""
    return F.col("state").isNotNull() if "state" in rows.columns else F.lit(False)


def messages(inputs: Inputs) -> Checked:
    """Return the messages of committed batches; repeated, the same in each row, counts those beyond the first of a side and position."""
    rows = inputs.committed(schemas.JOIN_MESSAGES)
    counted = rows.agg(F.count("*") - F.count_distinct(F.struct(schemas.SIDE, "position"))).collect()[0][0]
    frame = rows.withColumn("repeated", F.lit(counted).cast("bigint"))
    columns = inputs.types_of(schemas.JOIN_MESSAGES) | {"repeated": "bigint"}
    return Checked(frame, columns, inputs.version(schemas.JOIN_MESSAGES))


def late_events(inputs: Inputs) -> Checked:
    """Return the late events of committed batches."""
    schema = schemas.late_events(inputs.kind.event_types, inputs.kind.late_columns)
    return Checked(_late(inputs), _types(schema) | {"counted": "boolean"}, inputs.version(schemas.LATE_EVENTS))


def _late(inputs: Inputs) -> DataFrame:
    """Return the late events of committed batches, and whether they count as late: what is partly late counts as accepted."""
    rows = inputs.committed(schemas.LATE_EVENTS)
    counted = ~F.col(schemas.PARTLY) if schemas.PARTLY in rows.columns else F.lit(True)
    return rows.withColumn("counted", counted)


def frames_of(of: Changelog) -> dict[str, Callable[[Inputs], Checked]]:
    """Return what is checked of a pipeline, by the names of the suites."""
    own = {schemas.JOIN_MESSAGES: messages} if of == JOINS else {}
    return {schemas.EVENTS: events, of.changes: changelog, of.snapshot: latest, schemas.LATE_EVENTS: late_events, **own}


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in spark_schema(schema).fields}
