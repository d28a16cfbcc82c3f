"""The checked frames: each table at its pinned version, with the few columns for checks across rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.jobs.run import was_forgotten
from sessionlake.operators.shared.cleanups.names import EXPIRED_EVENTS
from sessionlake.quality.identities import TYPES as IDENTITIES
from sessionlake.quality.identities import with_identities
from sessionlake.quality.neighbours import crowded, repeated
from sessionlake.sources.registry import sources_of
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import Changelog, changelog_of
from sessionlake.warehouse.spark_columns import columns as columns_of
from sessionlake.warehouse.tables import Tables, spark_schema
from sessionlake.warehouse.views import merged_rows, read_batches, row_versions

SECOND_US = 1_000_000
NULL_KEY = ("null key", "empty key")
_SHARED = (
    schemas.LATE_EVENTS,
    schemas.DEAD_LETTERS,
    schemas.CORRECTIONS,
    schemas.CORRECTION_OUTCOMES,
    schemas.EVENT_IDS,
)


@dataclass(frozen=True)
class Checked:
    """A table as the checks see it."""

    frame: DataFrame
    columns: dict[str, str]
    """The columns that should be there, with their types as Spark names them."""
    version: str
    """Versions of the tables that were read, as name@version."""


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
        """Say whether the table was there; it may be missing in a warehouse of an earlier release."""
        return bool(self.pinned["versions"].get(name, -1) >= 0)

    def committed(self, name: str) -> DataFrame:
        """Return a side table's rows of committed batches; rows of a running batch don't count yet."""
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
        """The names of the tables of the operator's results."""
        return self.tables.changelog

    @property
    def unique_since(self) -> int | None:
        """The batch from which on each input's events are remembered; None if some never are."""
        since = self.pinned.get("unique_since", {})
        return (
            max(since.values()) if since and {*since} == {*self.kind.inputs} and self.has(schemas.EVENT_IDS) else None
        )

    @cached_property
    def kind(self) -> Kind:
        """The pipeline's operator, with the columns' types as its first commit pinned them."""
        sources = sources_of(self.tables.spark, self.config)
        return kind_of(self.config).make(self.config, sources, Pinned(self.pinned["types"], self.config.aggregates))

    def types_of(self, name: str) -> dict[str, str]:
        """Return the expected columns of a pipeline's own table; a changelog of 0.2 has no columns of a key's parts."""
        of, schema = self.of, next(spec.schema for spec in self.kind.tables() if spec.name == name)
        lacks = name == of.changes and not {*of.key_columns} <= {*self.table(name).columns}
        has = name in of.tables and not lacks
        types = _types(schemas.with_key_columns(schema, of.key, of.key_columns) if has else schema)
        # The columns of dropped aggregates stay.
        there = dict(self.table(name).dtypes)
        dropped = [
            column for layout in self.pinned.get("layouts", ()) for column in layout["texts"] if column not in types
        ]
        return types | {column: there[column] for column in dropped if column in there}


def pin(tables: Tables) -> dict[str, Any]:
    """Return versions of all inputs that belong together: the changelog's up to one commit, the rest not older."""
    of = tables.changelog
    states = (*of.state, *(each.changes for each in of.state_changelogs))
    versions = {name: tables[name].latest_version() for name in (of.snapshot, *_SHARED, *states)}
    changelog = tables[of.changes].latest_version()
    last = last_batch(tables)
    return {
        # A batch may have been committed between the two look-ups.
        "versions": {**versions, of.changes: max(changelog, last.version)},
        "batch_id": last.batch_id,
        "committed_us": last.committed_us,
        "types": dict(last.settings.types),
        "layouts": list(last.settings.layouts),
        "unique_since": dict(last.settings.unique_since),
        "forgotten": was_forgotten(tables),
        EXPIRED_EVENTS: last.state.get(EXPIRED_EVENTS, 0),
    }


def events(inputs: Inputs) -> Checked:
    """Return the outcomes of the events, a row for each batch, with the number of rows that the side tables hold of it.

    `unplaced` are accepted events that are in none of the operator's own counts.
    """
    dead = inputs.committed(schemas.DEAD_LETTERS).where("kind = 'event'")
    no_key = F.count_if(F.col("reason").isin(*NULL_KEY))
    batches = with_identities(batches_of(inputs), inputs.tables, inputs.committed, inputs.unique_since)
    names = [name for name in batches.columns if name not in IDENTITIES]
    joined = (
        batches.join(_late(inputs).where("counted").groupBy("batch_id").agg(F.count("*").alias("_late")), "batch_id", "left")
        .join(dead.groupBy("batch_id").agg(F.count("*").alias("_dead"), no_key.alias("_no_key")), "batch_id", "left")
        .join(_outcomes(inputs), "batch_id", "left")
    )  # fmt: skip
    age_us = F.lit(inputs.now_us) - F.unix_micros("committed_at")
    recent_us = inputs.pinned["committed_us"] - parse_duration(inputs.config.quality.rates_over)
    placed = [F.col(name) for name in inputs.of.accepted_counts]
    added = {
        "unplaced": reduce(Column.__sub__, placed, F.col("accepted")) if placed else F.lit(0).cast("bigint"),
        "late_rows": F.coalesce("_late", F.lit(0)).cast("bigint"),
        "dead_rows": F.coalesce("_dead", F.lit(0)).cast("bigint"),
        "null_keys": F.coalesce("_no_key", F.lit(0)).cast("bigint"),
        "outcome_rows": F.coalesce("_outcomes", F.lit(0)).cast("bigint"),
        "previous_watermark": F.lag("watermark").over(Window.orderBy("batch_id")),
        "age_seconds": age_us / SECOND_US,
        "recent": F.unix_micros("committed_at") >= recent_us,
        **{name: F.col(name) for name in IDENTITIES},
    }
    columns = _types(schemas.batches(inputs.of.counts)) | {
        **dict.fromkeys(("unplaced", "late_rows", "dead_rows", "null_keys", "outcome_rows"), "bigint"),
        "previous_watermark": "timestamp",
        "age_seconds": "double",
        "recent": "boolean",
        **IDENTITIES,
    }
    frame = joined.select(*columns_of(names), *(column.alias(name) for name, column in added.items()))
    version = inputs.version(inputs.of.changes, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES)
    return Checked(frame, columns, version)


def _outcomes(inputs: Inputs) -> DataFrame:
    """Return how many rows correction_outcomes has of each batch."""
    rows = inputs.committed(schemas.CORRECTION_OUTCOMES)
    return rows.groupBy("batch_id").agg(F.count("*").alias("_outcomes"))


def batches_of(inputs: Inputs) -> DataFrame:
    """Return the batches up to the pinned one."""
    return read_batches(inputs.tables).where(F.col("batch_id") <= inputs.pinned["batch_id"])


def changelog(inputs: Inputs) -> Checked:
    """Return the changelog; repeated, equal in each row, counts changes beyond the first of a key, start and batch."""
    changes = inputs.table(inputs.of.changes)
    twice = repeated(inputs.tables, changes, inputs.changelog_rows)
    frame = changes.withColumns({"has_state": _has_state(changes), "repeated": F.lit(twice).cast("bigint")})
    added = {"has_state": "boolean", "repeated": "bigint"}
    return Checked(frame, inputs.types_of(inputs.of.changes) | added, inputs.version(inputs.of.changes))


def latest(inputs: Inputs) -> Checked:
    """Return the latest version of each row; counts over all of them are the same in each row.

    doubled counts rows that the snapshot has more than once. too_near counts rows that begin within the gap after the
    row before; it exists only if rows of a key must lie a gap apart.
    """
    of, pinned = inputs.of, inputs.pinned["versions"]
    pins = {"snapshot_version": pinned[of.snapshot], "changelog_version": pinned[of.changes]}
    # A row stays open for a gap after the time from `closing_sql`.
    gap_us = inputs.kind.suite_values().get("gap_us")
    closing = F.expr(inputs.config.section.closing_sql("unix_micros({})", of.end))
    columns = inputs.types_of(of.snapshot)
    if not of.keeps_deletions:
        columns = {name: type_ for name, type_ in columns.items() if name not in of.hidden}
    near = {} if gap_us is None else {"too_near": "bigint"}
    added = {"has_state": "boolean", **near, "doubled": "bigint"}
    version = inputs.version(of.snapshot, of.changes)
    try:
        live = merged_rows(inputs.tables, **pins, deleted=of.keeps_deletions)
        everything = row_versions(inputs.tables, **pins)
    except AnalysisException:
        # Differing columns can't be merged; the schema check says which.
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
    """Say which rows have aggregate states; none if states are kept apart."""
    return F.col("state").isNotNull() if "state" in rows.columns else F.lit(False)


Check = Callable[[DataFrame], tuple[DataFrame, dict[str, str]]]
"""As in `OperatorEntry.quality`."""


def _own(table: str, check: Check, inputs: Inputs) -> Checked:
    """Return the rows of committed batches in a further table of the operator's, with its suite's columns."""
    frame, added = check(inputs.committed(table))
    return Checked(frame, inputs.types_of(table) | added, inputs.version(table))


def late_events(inputs: Inputs) -> Checked:
    """Return the late events of committed batches."""
    schema = schemas.late_events(inputs.kind.event_types, inputs.kind.late_columns)
    frame = _late(inputs)
    return Checked(
        frame,
        _types(_like(frame, schema, inputs.pinned.get("layouts", ()))) | {"counted": "boolean"},
        inputs.version(schemas.LATE_EVENTS),
    )


def _late(inputs: Inputs) -> DataFrame:
    """Return the late events of committed batches, and whether they count as late: an event that is late for some windows only counts as accepted."""
    rows = inputs.committed(schemas.LATE_EVENTS)
    counted = ~F.col(schemas.PARTLY) if schemas.PARTLY in rows.columns else F.lit(True)
    return rows.withColumn("counted", counted)


def frames_of(config: Config) -> dict[str, Callable[[Inputs], Checked]]:
    """Return the checked tables, by their suites' names."""
    of, quality = changelog_of(config), config.entry.quality
    checks: dict[str, Check] = {} if quality is None else named(quality)
    own = {table: partial(_own, table, check) for table, check in checks.items()}
    return {schemas.EVENTS: events, of.changes: changelog, of.snapshot: latest, schemas.LATE_EVENTS: late_events, **own}


def _like(frame: DataFrame, schema: pa.Schema, layouts: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """Return the schema of late events with the table's fields of `event`: in its order, dropped aggregates' fields among them."""
    event = schema.field("event")
    there = to_arrow_schema(frame.select("event.*").schema)
    before = {schemas.NO_COLUMN, *(name for layout in layouts for name in layout["columns"])}
    wanted = {field.name: field for field in event.type}
    known = {field.name: wanted.get(field.name, field) for field in there if field.name in {*wanted, *before}}
    return schema.set(schema.get_field_index("event"), event.with_type(pa.struct([*(known | wanted).values()])))


def _types(schema: pa.Schema) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in spark_schema(schema).fields}
