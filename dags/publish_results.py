"""
### Publishes all changes to the topic of `[sink.kafka]` and the tables of `[sink.delta]` and `[sink.postgres]`

Runs whenever the results have changed, and ends when topic and table have all of it. Only of pipelines that have such a section.

**If it is red:** the last lines of the log say why. Nothing is lost or sent twice for good: the next run goes on where this one
stopped, the topic is compacted, and each step of the table takes effect once.
"""

from airflow.sdk import DAG

from sessionlake_airflow.exit_codes import NO_BATCHES
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in (one for one in pipelines("publish") if one.publishes):
    with DAG(
        schedule=pipeline.after_results("publish"),
        description="Publishes what has changed to a topic or table",
        doc_md=__doc__,
        **pipeline.dag("publish"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="publish",
            command="publish",
            arguments=["--once"],
            names_run=False,
            skip_on=[NO_BATCHES],
        )
