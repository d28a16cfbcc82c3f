"""`sessions_live` or `windows_live` for other engines: the statement that makes the view in an engine that sees the tables."""

from collections.abc import Callable

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import DUCKDB, SPARK, TRINO, Dialect, shown_sql
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import sql_text

DIALECTS: dict[str, tuple[Dialect, Callable[[str], str] | None]] = {
    "spark": (SPARK, lambda path: f"delta.{SPARK.named(path)}"),
    "duckdb": (DUCKDB, lambda path: f"delta_scan({sql_text(path)})"),
    "trino": (TRINO, None),
}
"""By engine: its SQL dialect, and how it names a Delta table by its path, if it can."""


def live_view(config: Config, name: str, schema: str | None = None) -> str:
    """Return the statement that creates or replaces the view of the latest rows in an engine's SQL.

    The tables are named by their paths, or by their names in a schema in which they are registered; the view is then
    made there too. An engine that knows no paths gets the names alone, which mean the current schema.

    A row is final by the watermark of the saved batches, which may be behind: no row is called final too early.
    """
    dialect, by_path = DIALECTS[name]
    lake = Lake.of(config)
    of, section = lake.changelog, config.section
    if not lake[of.snapshot].exists():
        raise NoBatchesError(
            f"pipeline.warehouse: {lake.warehouse!r} has no {of.snapshot} yet; run `sessionlake run` first"
        )
    by_use = schema is None and by_path is None
    prefix = "" if schema is None else f"{schema}."

    def table(name: str) -> str:
        return by_path(lake[name].uri) if by_path is not None and schema is None else f"{prefix}{name}"

    columns = lake[of.snapshot].open().schema().to_arrow().names
    lag_us = section.to_close_us + dialect.rounding_us
    closing, watermark = section.closing_sql(dialect.micros, of.end), dialect.micros.format("max(watermark)")
    final = f"{closing} < (select {watermark} - {lag_us} from {table(schemas.BATCHES)})"
    if not of.has_times:
        final = section.final_sql(of.end, {})
    rule = config.quarantined_sql(dialect.micros)
    conditions = [*([final] if section.shown == "final" else []), *([f"{rule} is null"] if rule else [])]
    hidden_us = None
    if section.hides_us is not None:
        # A batch starts after its clock: rows are hidden a moment sooner than by the stream.
        seen = f"select {dialect.micros.format('max(started_at)')} - {section.hides_us} from {table(schemas.BATCHES)}"
        hidden_us = f"coalesce(({seen}), 0)"
    every = of.live_sql(dialect, columns, snapshot=table(of.snapshot), changelog=table(of.changes), hidden_us=hidden_us)
    live = shown_sql(every, " and ".join(conditions) or None, final if section.shown == "marked" else None)
    remark = (
        f"-- in the schema in which the tables are registered, as after: use delta.{config.pipeline.name}\n"
        if by_use
        else ""
    )
    return f"{remark}create or replace view {prefix}{of.live} as\n{live};"
