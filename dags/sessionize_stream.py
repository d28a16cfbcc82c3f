"""
### Keeps the stream running

Each run of this DAG is one stretch of the stream (param *minutes*); then it ends, the asset of its results is updated, and the
next run starts at once. With `[airflow] run = "micro"` it runs by a schedule instead.

**Never two on one pipeline.** One run at a time; a second trigger waits in the queue. A retried or cleared task stops its
driver first; a killed task, worker or scheduler takes the driver with it. Should one live all the same, the engine's lock
refuses the next (`is locked by process N`, exit code 4) and the retry waits.

**If it is red:** the last lines of the log say why. Nothing is lost: the next run goes on at the last committed batch.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import RUN, STREAM, pipelines

for pipeline in (one for one in pipelines() if one.run == STREAM):
    with DAG(
        schedule="@continuous",
        description="Keeps the pipeline running, in stretches",
        doc_md=__doc__,
        params={
            "minutes": Param(
                60,
                type="number",
                exclusiveMinimum=0,
                maximum=1440,
                title="Minutes",
                description="Length of a stretch. The restart between two takes seconds, and lets new code and settings in.",
            ),
        },
        **{**pipeline.dag(RUN), "dagrun_timeout": timedelta(hours=26)},
    ):
        SparkJob(
            config=pipeline.config,
            task_id="sessionize",
            command="run",
            names_run=False,
            minutes="minutes",
            outlets=[pipeline.results],
            retries=5,
            execution_timeout=timedelta(hours=25),
        )
