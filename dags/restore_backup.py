"""
### Puts a backup back

Into the warehouse of the pipeline, which must be empty. Only by hand. Then the pipeline goes on where the backup ends.

**If it is red with "is not empty":** the pipeline has tables. Move them away first. Nothing was changed.
"""

from airflow.sdk import DAG

from sessionlake_airflow.defaults import directory_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("restore"):
    with DAG(
        schedule=None,
        description="Puts a backup back into an empty warehouse",
        doc_md=__doc__,
        params={"directory": directory_param("The name of the backup, below SESSIONLAKE_BACKUPS.")},
        **pipeline.dag("restore"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="restore",
            command="restore",
            operands=["directory"],
            names_run=False,
            outlets=[pipeline.results],
        )
