"""
### Runs the pipeline over what has arrived, every ten minutes

Each run takes all input that is there (Spark's availableNow) and ends. With `[airflow] run = "stream"` it is a long task instead. If a
stream of the pipeline runs already, the run is skipped: that one takes the input.

**If it is red:** the last lines of the log say why. Nothing is lost: the next run goes on at the last committed batch, so
that clearing an old failed run is never needed.
"""

from datetime import timedelta

from airflow.sdk import DAG

from sessionlake_airflow.exit_codes import BUSY
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import MICRO, RUN, pipelines

for pipeline in (one for one in pipelines() if one.run == MICRO):
    with DAG(
        schedule=pipeline.small_runs("*/10 * * * *"),
        description="Processes what has arrived, every ten minutes, or when a pipeline that it reads has changed",
        doc_md=__doc__,
        **pipeline.dag(RUN),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="sessionize",
            command="run",
            arguments=["--once"],
            names_run=False,
            skip_on=[BUSY],
            outlets=[pipeline.results],
            execution_timeout=timedelta(hours=4),
        )
