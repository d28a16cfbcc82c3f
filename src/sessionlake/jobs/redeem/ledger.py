"""The ledger of redeemed dead letters: marks of runs whose corrections are in their table. Each letter is redeemed once.

A run marks the letters that it takes before it appends corrections. The append, under Delta's txnAppId, makes the marks
count. The marks of a run that is fenced before its append never count.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sessionlake.jobs.again.claims import Claims
from sessionlake.jobs.again.runs import RecordedRun
from sessionlake.jobs.run import JobRun, digest
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import FENCED, app_id

REDEEM = "redeem"
LETTER = "letter"
_ONCE_CALLED = "_once_called"
"""The column with the letters' names in earlier releases, whose marks count, too."""


CLAIMS = Claims({REDEEM: (schemas.CORRECTIONS,)}, RecordedRun)
"""The order of runs. The append of a run's corrections makes the run's marks count."""


def not_redeemed(run: JobRun, dead_letters: DataFrame) -> DataFrame:
    """Return the dead letters that no other run has redeemed, with their identities (column `letter`)."""
    letters, kept = _with_letter(dead_letters), (*dead_letters.columns, LETTER)
    if run.tables[schemas.REDEEMED].exists():
        marks = run.tables[schemas.REDEEMED].read().where(F.col("run_id") != run.run_id)
        ids = [row[0] for row in marks.select("run_id").distinct().collect()]
        # By the marks and not by the records of runs, which may be gone by age.
        versions = run.tables[schemas.CORRECTIONS].app_versions(app_id(REDEEM, run_id) for run_id in ids)
        done = [run_id for run_id in ids if versions.get(app_id(REDEEM, run_id), FENCED) != FENCED]
        before = marks.where(F.col("run_id").isin(done)).select(LETTER)
        for name in (LETTER, _ONCE_CALLED):
            letters = letters.join(before.withColumnRenamed(LETTER, name), name, "left_anti")
    return letters.select(*kept)


def _with_letter(dead_letters: DataFrame) -> DataFrame:
    """Add a dead letter's identity: batch, reason, source, text, and a number among letters that share all four."""
    source = F.coalesce("source", F.lit(""))
    text = [F.col("batch_id").cast("string"), F.col("reason"), source, F.col("raw")]
    hashes = {LETTER: digest(*text), _ONCE_CALLED: F.md5(F.concat_ws("\0", *text))}
    alike = Window.partitionBy(LETTER).orderBy(F.lit(0))
    numbered = dead_letters.withColumns(hashes).withColumn("_number", F.row_number().over(alike))
    named = {name: F.concat_ws("-", name, "_number") for name in hashes}
    return numbered.withColumns(named).drop("_number")
