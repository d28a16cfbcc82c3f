"""
### Sessionizes what has arrived, every ten minutes

Each run takes all input that is there (Spark's availableNow) and ends. Use this **or** `sessionize_stream`. Where another
sessionizer runs on the pipeline, the run is skipped: that one takes the input.

**If it is red:** the last lines of the log say why. Nothing is lost: the next run goes on at the last committed batch, so
that clearing an old failed run is never needed.
"""

from datetime import timedelta

from airflow.sdk import DAG, CronTriggerTimetable

from sessionlake_airflow.defaults import DAG_DEFAULTS, SESSIONIZE_POOL, SESSIONS, config_param
from sessionlake_airflow.exit_codes import BUSY
from sessionlake_airflow.job import SparkJob

with DAG(
    "sessionize_micro",
    description="Sessionizes what has arrived, every ten minutes; an alternative to sessionize_stream",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("*/10 * * * *", timezone="UTC", run_immediately=True),
    tags=["sessionlake", "sessionize"],
    params={"config": config_param()},
    **DAG_DEFAULTS,
):
    SparkJob(
        task_id="sessionize",
        command="run",
        arguments=["--once"],
        names_run=False,
        skip_on=[BUSY],
        outlets=[SESSIONS],
        pool=SESSIONIZE_POOL,
        execution_timeout=timedelta(hours=4),
    )
