"""The ledger of redeemed dead letters: marks of runs whose corrections are in their table. Each letter is redeemed once.

A run marks the letters that it takes before it appends corrections. The append, under Delta's txnAppId, makes its marks
count. A run that starts fences every earlier run that has not appended, so that run's marks never count. It gives way
to a later run.
"""

import json

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sessionlake.errors import OvertakenError
from sessionlake.jobs.run import JobRun, digest
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import FENCED, app_id
from sessionlake.warehouse.tables import Tables

REDEEM = "redeem"
NUMBER = "number"
"""The name under which a run pins its place in the order of runs, which is independent of clocks."""
LETTER = "letter"
_ONCE_CALLED = "_once_called"
"""The column of the names that earlier releases gave to letters: their marks count, too."""


def next_number(tables: Tables) -> int:
    """Return a number above those of all runs that are recorded."""
    return 1 + max((number for number, _ in _runs(tables)), default=0)


def claim(run: JobRun) -> None:
    """Fence the unfinished runs before this one; OvertakenError if a later one has started before this one appended."""
    runs = _runs(run.tables)
    versions = _versions(run.tables, [run_id for _, run_id in runs])
    ours = (run.pinned[NUMBER], run.run_id)
    if versions.get(run.run_id) is None:
        later = [run_id for number, run_id in runs if (number, run_id) > ours and versions.get(run_id) != FENCED]
        if later:
            raise _overtaken(run, later[-1])
    for number, run_id in runs:
        if (number, run_id) < ours and versions.get(run_id) is None:
            run.tables[schemas.CORRECTIONS].fence(app_id(REDEEM, run_id))


def fence_redeems(tables: Tables) -> None:
    """Keep unfinished runs from appending rows that they read before now; for a job that erases rows."""
    runs = [run_id for _, run_id in _runs(tables)]
    versions = _versions(tables, runs)
    for run_id in runs:
        if versions.get(run_id) is None:
            tables[schemas.CORRECTIONS].fence(app_id(REDEEM, run_id))


def append_corrections(run: JobRun, rows: DataFrame) -> None:
    """Append a claimed run's corrections once, which makes its marks count; OvertakenError if another run has fenced it."""
    if not run.append_unless_fenced(schemas.CORRECTIONS, rows):
        raise _overtaken(run, None)


def not_redeemed(run: JobRun, dead_letters: DataFrame) -> DataFrame:
    """Return the dead letters that no other run has redeemed, with their identities (column `letter`)."""
    letters, kept = _with_letter(dead_letters), (*dead_letters.columns, LETTER)
    if run.tables[schemas.REDEEMED].exists():
        marks = run.tables[schemas.REDEEMED].read().where(F.col("run_id") != run.run_id)
        ids = [row[0] for row in marks.select("run_id").distinct().collect()]
        done = [run_id for run_id, version in _versions(run.tables, ids).items() if version != FENCED]
        before = marks.where(F.col("run_id").isin(done)).select(LETTER)
        for name in (LETTER, _ONCE_CALLED):
            letters = letters.join(before.withColumnRenamed(LETTER, name), name, "left_anti")
    return letters.select(*kept)


def _with_letter(dead_letters: DataFrame) -> DataFrame:
    """Add the identity of a dead letter: of batch, reason, source and text, and a number among those that share all four."""
    source = F.coalesce("source", F.lit(""))
    text = [F.col("batch_id").cast("string"), F.col("reason"), source, F.col("raw")]
    hashes = {LETTER: digest(*text), _ONCE_CALLED: F.md5(F.concat_ws("\0", *text))}
    alike = Window.partitionBy(LETTER).orderBy(F.lit(0))
    numbered = dead_letters.withColumns(hashes).withColumn("_number", F.row_number().over(alike))
    named = {name: F.concat_ws("-", name, "_number") for name in hashes}
    return numbered.withColumns(named).drop("_number")


def _runs(tables: Tables) -> list[tuple[int, str]]:
    """Return number and id of each recorded run, in order."""
    if not tables[schemas.JOB_RUNS].exists():
        return []
    started = tables[schemas.JOB_RUNS].read().where((F.col("job") == REDEEM) & (F.col("event") == "started"))
    return sorted((json.loads(row.pinned)[NUMBER], row.run_id) for row in started.select("run_id", "pinned").collect())


def _versions(tables: Tables, run_ids: list[str]) -> dict[str, int]:
    ids = {app_id(REDEEM, run_id): run_id for run_id in run_ids}
    return {ids[key]: version for key, version in tables[schemas.CORRECTIONS].app_versions(ids).items()}


def _overtaken(run: JobRun, by: str | None) -> OvertakenError:
    whom = "another run or an erasure (`forget`)" if by is None else f"run {by!r}"
    return OvertakenError(
        f"--run-id: {run.run_id!r} of redeem was overtaken by {whom}; it has redeemed nothing, start a run under a new id"
    )
