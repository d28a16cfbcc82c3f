"""The ledger's questions as SQL, asked by jobs through Spark and by status through DuckDB."""

from sessionlake.jobs.late.spans import BACKFILL
from sessionlake.warehouse import schemas
from sessionlake.warehouse.dialects import Dialect

EXPIRED_BY_RUNS = "batch_id is null and kind = 'event' and reason = 'expired'"
"""Which dead letters are late events that runs of reprocess_late found expired."""


def refused(outcomes: str) -> str:
    """Return the query of the corrections that batches refused: correction_id, kind, outcome, batch_id."""
    return f"select correction_id, kind, outcome, batch_id from {outcomes} where outcome <> '{schemas.APPLIED}'"


def stale_puts(dialect: Dialect, corrections: str, refused: str, as_of: int) -> str:
    """Return the query of the puts of backfills' replacements that batches up to `as_of` refused, which `refused` lists.

    Its columns are run_id, put_key, from_us and to_us, microseconds and inclusive, and stale_at, the batch that refused it.
    """
    start, end = (dialect.micros.format(f"put.{name}") for name in ("start_time", "end_time"))
    # Of slices that have left the stores a replacement is expired: the events that it would have taken in wait as well.
    return f"""
        select run_id, key as put_key, {start} as from_us, {end} as to_us, stale_at
        from (
            select written.run_id, written.key, refused.batch_id as stale_at, {dialect.unnest.format("written.put")} as put
            from {corrections} as written join {refused} as refused on written.correction_id = refused.correction_id
            where written.job = '{BACKFILL}' and written.kind = 'replace'
            and refused.outcome in ('{schemas.STALE}', '{schemas.EXPIRED}') and refused.batch_id <= {as_of}
        ) as puts
    """
