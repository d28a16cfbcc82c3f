"""What leaves the side tables with age, so that they do not grow for ever; what sums and other jobs need stays."""

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
    """Return what is to be done, by name; each does nothing where nothing is old enough."""
    now_us, tables = upkeep.run.started_us, upkeep.tables
    runs_before = now_us - parse_duration(config.compact.runs)
    dead_before = now_us - parse_duration(config.compact.dead_letters)
    found: dict[str, Callable[[], None]] = {"age_dead_letters": partial(_empty_dead_letters, upkeep, dead_before)}
    # What the other jobs have done decides about late events for ever.
    jobs = ", ".join(f"'{job.name}'" for job in JOBS if job.record_ages)
    for table, which in ((schemas.JOB_RUNS, f"job in ({jobs})"), (schemas.QUALITY_RESULTS, "true")):
        if tables[table].exists():
            condition = f"{which} and at < timestamp_micros({runs_before})"
            found[f"age_{table}"] = partial(_delete, upkeep, table, condition)
    return found


def _delete(upkeep: Upkeep, table: str, condition: str) -> None:
    upkeep.execute(table, STEP, f"delete from {upkeep.tables[table].sql_name()} where {condition}")  # noqa: S608 (a path and numbers)


def _empty_dead_letters(upkeep: Upkeep, before_us: int) -> None:
    """Empty old dead letters of events of what they held; the rows stay, since their number is part of the batches' sums.

    A row without text, key and time is a few bytes once files are put together. Those of corrections and of jobs stay
    whole: a backfill reads them.
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
        f"update {name} set raw = null, session_key = null, event_time = null where {where}",  # noqa: S608 (a path and a number)
    )
