"""What became of corrections, as the batches that took them say: the table correction_outcomes, and from when on it tells."""

from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import Logs

TOLD_FROM = "sessionlake.told_from"
"""The application of correction_outcomes whose version is the first batch with rows in it: releases before had no such table."""
NEVER = (1 << 62) - 1
"""A batch that there never is."""


def told_from(logs: Logs) -> int:
    """Return the first batch of which correction_outcomes tells what became of its corrections; NEVER where it does of none."""
    name = schemas.CORRECTION_OUTCOMES
    first = logs[name].app_version(TOLD_FROM) if logs[name].exists() else None
    return NEVER if first is None else first


def refused_sql(outcomes: str, dead_letters: str, first: int) -> str:
    """Return the query of the corrections that batches refused: correction_id, kind, outcome, batch_id.

    The tables' names are those of the engine that runs it, Spark or DuckDB; `first` is `told_from`. What batches before that
    one refused only the dead letters tell.
    """
    told = f"select correction_id, kind, outcome, batch_id from {outcomes} where outcome <> '{schemas.APPLIED}'"  # noqa: S608 (names of tables)
    before = f"""
        select source as correction_id, kind,
               case when reason in ('{schemas.STALE}', '{schemas.EXPIRED}') then reason else '{schemas.MALFORMED}' end as outcome, batch_id
        from {dead_letters} where kind <> 'event' and batch_id < {first}
    """  # noqa: S608
    parts = [*([told] if first < NEVER else []), *([before] if first > 0 else [])]
    return " union all ".join(parts)
