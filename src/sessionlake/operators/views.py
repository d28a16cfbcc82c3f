"""The results of a pipeline with Spark: sessions_live, windows_live ..., exact at any time, and those of several as schemas of SQL."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, NoBatchesError
from sessionlake.serve.database import schema_of
from sessionlake.serve.views import Settled, view_queries
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after, find_last_batch
from sessionlake.warehouse.changelog import shown_sql
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import fold_point, hidden_us, merged_rows


def read_live(spark: SparkSession, config: Config) -> DataFrame:
    """Return all rows as of the last committed batch, the snapshot and the changelog's tail merged on read.

    They are shown as the operator's section says (`Facts.shown`): all, those that are final and so can't change
    by events any more, or all with a column `final`. NoBatchesError if there are none yet.
    """
    tables = Tables.of(spark, config)
    of = tables.changelog
    _require_batches(tables)
    last = find_last_batch(tables)
    section = _as_then(config, last).section
    rows = merged_rows(tables)
    rule = config.quarantined_sql(SPARK.micros)
    if rule is not None:
        rows = rows.where(f"{rule} is null")
    if section.facts.shown == "all":
        return rows
    final = section.final_sql(of.end, {} if last is None else last.state)
    if section.facts.shown == "final":
        return rows.where(F.expr(final))
    if not section.facts.rows_lag:
        return rows.withColumn("final", F.expr(final))
    # Rows are read before the state, so no row is called final too early.
    given: dict[str, Any] = {name: tables[name].read() for name in of.state_changelogs[0].tables}
    held = of.held_sql(SPARK, lambda name: f"{{{name}}}")
    return spark.sql(shown_sql("select * from {live}", None, final, held), live=rows, **given)


def _as_then(config: Config, last: BatchCommit | None) -> Config:
    """Return a config with the operator's section as a batch had it."""
    return config if last is None else config.as_taken(last.settings.rebuild, last.settings.live)


def create_schemas(spark: SparkSession, configs: Iterable[Config]) -> None:
    """Make a schema of views for each pipeline in Spark's catalog, which must be one in memory, as `serve.database.open_databases` does.

    A `-` in a pipeline's name is a `_` in that of its schema. Each table stays at one version. A pipeline without batches has
    no views. NoBatchesError if none has any.
    """
    if spark.conf.get("spark.sql.catalogImplementation") != "in-memory":
        raise ConfigError(
            "spark.sql.catalogImplementation: the views of a query may not stay in a catalog that lasts; set it to 'in-memory'"
        )
    made: dict[str, str] = {}
    without = list[str]()
    for config in configs:
        name, schema = config.pipeline.name, schema_of(config).replace("-", "_")
        if schema.lower() in made:
            raise ConfigError(
                f"pipeline.name: {name!r} and {made[schema.lower()]!r} are both {schema!r} in Spark's SQL; rename one of them"
            )
        made[schema.lower()] = name
        try:
            queries = _pinned_queries(Tables.of(spark, config), config, schema)
        except NoBatchesError:
            without.append(name)
            continue
        named = SPARK.named(schema)
        spark.sql(f"drop schema if exists {named} cascade")
        spark.sql(f"create schema {named}")
        for view, query in queries.items():
            spark.sql(f"create view {named}.{view} as {query}")
    if len(without) == len(made):
        raise NoBatchesError(f"sql: no batches are committed yet by {', '.join(without)}; run `sessionlake run` first")


def _pinned_queries(tables: Tables, config: Config, schema: str) -> dict[str, str]:
    """Return the queries of a pipeline's tables and views, each table at its newest version now."""
    _require_batches(tables)
    find_last_batch(tables)  # refuses tables that are half restored
    of = tables.changelog
    # In this order: rows that are trimmed from the changelog are in the snapshot.
    stored = [name for one in of.state_changelogs for name in one.tables] if config.section.facts.rows_lag else []
    names = [name for name in (*of.tables, *stored, *schemas.SHARED) if tables[name].exists()]
    versions = {name: tables[name].latest_version() for name in names}

    def pinned(name: str) -> str:
        return f"{tables[name].sql_name()} version as of {versions[name]}"

    commit = tables[of.changes].last_commit(versions[of.changes])
    last = None if commit is None else BatchCommit.of(commit, of.changes)
    config, state = _as_then(config, last), {} if last is None else last.state
    settled = Settled(
        config.section.final_sql(of.end, state),
        hidden_us(tables, versions[of.changes]) if of.keeps_deletions else None,
        fold_point(tables, versions[of.snapshot]),
    )
    columns = tables[of.snapshot].read(versions[of.snapshot]).columns
    queries = {name: f"select * from {pinned(name)}" for name in names}
    queries[schemas.BATCHES] = _batches_sql(tables, versions, pinned(schemas.BATCHES))
    return queries | view_queries(
        config, "spark", columns, pinned, lambda name: f"{SPARK.named(schema)}.{name}", settled
    )


def _batches_sql(tables: Tables, versions: dict[str, int], pinned: str) -> str:
    """Return the query of all batches: those in the table, and the newer ones of the changelog's commits (`read_batches`)."""
    of = tables.changelog
    schema = schemas.batches(of.counts)
    there = tables[schemas.BATCHES].read(versions[schemas.BATCHES])
    seen = there.agg(F.max("changelog_version")).collect()[0][0]
    added = {name: f"coalesce({name}, 0)" if name in there.columns else "0L" for name in schemas.ADDED_COUNTS}
    columns = ", ".join(f"{added[name]} as {name}" if name in added else name for name in schema.names)
    newer = batches_after(tables, -1 if seen is None else seen)
    rows = [batch.row(of.counts) for batch in newer if batch.version <= versions[of.changes]]
    values = [f"({', '.join(_literal(row[field.name], field.type) for field in schema)})" for row in rows]
    more = f" union all select * from values {', '.join(values)}" if values else ""
    return f"select {columns} from {pinned}{more}"


def _literal(value: str | int | None, type_: pa.DataType) -> str:
    """Return a value of `batches` as SQL; a time is in microseconds."""
    if value is None:
        return f"cast(null as {'timestamp' if type_ == schemas.TIME else 'bigint'})"
    if type_ == schemas.TIME:
        return f"timestamp_micros({value})"
    return SPARK.text(value) if isinstance(value, str) else f"{value}L"


def _require_batches(tables: Tables) -> None:
    of = tables.changelog
    if not tables[of.changes].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {tables.warehouse!r} has no {of.snapshot} yet; run `sessionlake run` first"
        )
