"""A pipeline's views for engines that see its tables: their queries, and the statements that make them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import changelog_of, shown_sql
from sessionlake.warehouse.dialects import DUCKDB, SPARK, TRINO, Dialect
from sessionlake.warehouse.grace import of_warehouse
from sessionlake.warehouse.lake import Lake

DIALECTS: dict[str, tuple[Dialect, Callable[[str], str] | None]] = {
    "spark": (SPARK, lambda path: f"delta.{SPARK.named(path)}"),
    "duckdb": (DUCKDB, lambda path: f"delta_scan({DUCKDB.text(path)})"),
    "trino": (TRINO, None),
}
"""By engine: its SQL dialect, and how it names a Delta table by its path, if it can."""
Named = Callable[[str], str]
"""Returns a table's or a view's name in a query, given its own."""


@dataclass(frozen=True)
class Settled:
    """The conditions of the rows of a pipeline's views that its tables' rows do not show by themselves, as SQL."""

    final: str
    """The condition of a row that events can't change any more."""
    hidden_us: int | str | None = None
    """The time at which or before it rows were written that have expired without a change; None if no row does."""
    after: int | None = None
    """The batch up to which changes are in the snapshot, if it is known."""


def settled_by_batches(config: Config, lake: Lake, engine: str, table: Named) -> Settled:
    """Return the conditions by the saved rows of `batches`, which may be behind: no row is called final too early."""
    dialect, _ = DIALECTS[engine]
    of, batches = changelog_of(config), table(schemas.BATCHES)
    section = of_warehouse(config, find_last_batch(lake)).section
    final = section.final_sql(of.end, {})
    if of.has_times:
        lag_us = section.to_close_us + dialect.rounding_us
        closing, watermark = section.closing_sql(dialect.micros, of.end), dialect.micros.format("max(watermark)")
        final = f"{closing} < (select {watermark} - {lag_us} from {batches})"
    if section.facts.hides_us is None:
        return Settled(final)
    # A batch starts after its clock: rows are hidden a moment sooner than by the stream.
    seen = f"select {dialect.micros.format('max(started_at)')} - {section.facts.hides_us} from {batches}"
    return Settled(final, f"coalesce(({seen}), 0)")


def view_queries(
    config: Config, engine: str, columns: Iterable[str], table: Named, view: Named, settled: Settled
) -> dict[str, str]:
    """Return the queries of a pipeline's views by the views' own names, each after those that it reads.

    `columns` are those of the snapshot. `table` and `view` name tables and views in the queries.
    """
    dialect, _ = DIALECTS[engine]
    of, section = changelog_of(config), config.section
    every = of.live_sql(
        dialect,
        list(columns),
        snapshot=table(of.snapshot),
        changelog=table(of.changes),
        after=settled.after,
        hidden_us=settled.hidden_us,
    )
    rule = config.quarantined_sql(dialect.micros)
    conditions = [*([settled.final] if section.facts.shown == "final" else []), *([f"{rule} is null"] if rule else [])]
    mark = settled.final if section.facts.shown == "marked" else None
    held = of.held_sql(dialect, table) if section.facts.rows_lag else None
    queries = {of.live: shown_sql(every, " and ".join(conditions) or None, mark, held), of.every: every}
    before: list[str] = []
    for name, query in section.further_views(engine, dialect.micros, view(of.every)).items():
        # They name each other by their own names, which may not be those in the engine.
        queries[name] = f"with {', '.join(before)}\n{query}" if before else query
        before.append(f"{name} as (\n{query}\n)")
    return queries


def view_statements(config: Config, engine: str, schema: str | None = None) -> dict[str, str]:
    """Return by view the statement that creates or replaces it in an engine, each after those that it reads.

    The tables are named by their paths, or by their names in a schema in which they are registered; the views are then
    made there too. An engine that knows no paths gets the names alone, which mean the current schema. A pipeline of a
    project has its name before those of its views and tables (`Config.prefix`), but not before paths.
    """
    _, by_path = DIALECTS[engine]
    lake = lake_with_tables(config)

    def view(name: str) -> str:
        return f"{'' if schema is None else f'{schema}.'}{config.prefix}{name}"

    def table(name: str) -> str:
        return by_path(lake[name].uri) if by_path is not None and schema is None else view(name)

    settled = settled_by_batches(config, lake, engine, table)
    queries = view_queries(config, engine, snapshot_columns(lake), table, view, settled)
    return {name: f"create or replace view {view(name)} as\n{query};" for name, query in queries.items()}


def lake_with_tables(config: Config) -> Lake:
    """Return a pipeline's tables; NoBatchesError if they are not there."""
    lake = Lake.of(config)
    snapshot = lake.changelog.snapshot
    if not lake[snapshot].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {lake.warehouse!r} has no {snapshot} yet; run `sessionlake run` first"
        )
    return lake


def with_tables(configs: Iterable[Config]) -> tuple[list[Config], list[str]]:
    """Return the pipelines that have tables, and the names of those that have none; NoBatchesError if all have none."""
    found, without = list[Config](), dict[str, NoBatchesError]()
    for config in configs:
        try:
            lake_with_tables(config)
        except NoBatchesError as error:
            without[config.pipeline.name] = error
        else:
            found.append(config)
    if not found:
        raise next(iter(without.values()))
    return found, list(without)


def snapshot_columns(lake: Lake) -> list[str]:
    """Return the columns of the table of latest rows."""
    return list(lake[lake.changelog.snapshot].open().schema().to_arrow().names)


def live_view(config: Config, engine: str, schema: str | None = None) -> str:
    """Return the statement of the view of the latest rows, as `view_statements` does."""
    return view_statements(config, engine, schema)[changelog_of(config).live]


def current_schema_remark(engine: str, schema: str | None, name: str) -> str:
    """Return a comment about the schema that statements are for, if the tables are those of the current one; otherwise nothing."""
    if schema is not None or DIALECTS[engine][1] is not None:
        return ""
    return f"-- in the schema in which the tables are registered, as after: use delta.{name}\n"
