"""Old rows of the side tables are deleted here. Rows that sums and other jobs need stay."""

from collections.abc import Callable
from functools import partial

from pyspark.sql import functions as F

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.jobs.compact.upkeep import Upkeep
from sessionlake.jobs.registry import JOBS
from sessionlake.warehouse import schemas

STEP = "age"


def steps(upkeep: Upkeep, config: Config) -> dict[str, Callable[[], None]]:
    """Return the steps to do, by name; each does nothing if nothing is old enough."""
    now_us, tables = upkeep.run.started_us, upkeep.tables
    runs_before = now_us - parse_duration(config.compact.runs)
    dead_before = now_us - parse_duration(config.compact.dead_letters)
    found: dict[str, Callable[[], None]] = {"age_dead_letters": partial(_empty_dead_letters, upkeep, dead_before)}
    # These records decide for ever which late events have been reprocessed.
    jobs = ", ".join(f"'{job.name}'" for job in JOBS if job.record_ages)
    for table, which in ((schemas.JOB_RUNS, f"job in ({jobs})"), (schemas.QUALITY_RESULTS, "true")):
        if tables[table].exists():
            condition = f"{which} and at < timestamp_micros({runs_before})"
            found[f"age_{table}"] = partial(upkeep.delete, table, STEP, condition)
    return found


def _empty_dead_letters(upkeep: Upkeep, before_us: int) -> None:
    """Remove text, key and time from old dead letters of events; the rows stay, because their number is part of the batches' sums.

    An emptied row takes a few bytes once files are rewritten together. Dead letters of corrections and of jobs stay
    whole, because a backfill reads them.
    """
    old = upkeep.tables[schemas.BATCHES].read().where(F.unix_micros("committed_at") < before_us)
    row = old.agg(F.max("batch_id")).head()
    if row is None or row[0] is None:
        return
    name = upkeep.tables[schemas.DEAD_LETTERS].sql_name()
    where = f"kind = 'event' and batch_id <= {row[0]} and raw is not null"
    upkeep.execute(
        schemas.DEAD_LETTERS,
        STEP,
        f"update {name} set raw = null, key = null, event_time = null where {where}",  # noqa: S608 (a path and a number)
    )
