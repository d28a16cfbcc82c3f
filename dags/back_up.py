"""
### Saves tables and checkpoint as of one batch

Into a new directory or URI, while the pipeline runs. Only by hand. To put it back: `NAME.restore`.

**If it is red:** the directory is no backup. Trigger it again with the same directory, or another one.
"""

from airflow.sdk import DAG

from sessionlake_airflow.defaults import directory_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("backup"):
    with DAG(
        schedule=None,
        description="Saves tables and checkpoint as of one batch",
        doc_md=__doc__,
        params={"directory": directory_param("A new name, below SESSIONLAKE_BACKUPS.")},
        **pipeline.dag("backup"),
    ):
        SparkJob(config=pipeline.config, task_id="backup", command="backup", operands=["directory"], names_run=False)
