"""
### The right to erasure over all pipelines of the project

As `forget` of each pipeline, one after the other, those that are read first: the keys' file is handed to each, and the counts of
the proof are the sums. Only by hand. Stop whatever sends events of the keys first. **If it is red:** the log names the pipeline; clear the
task, or trigger again with the same keys: each pipeline goes on where it was.
"""

from airflow.sdk import DAG

from sessionlake_airflow.defaults import DAG_DEFAULTS, apply_param, dry_run_param, keys_params, wait_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines, project_config

if (project := project_config()) is not None:
    with DAG(
        dag_id="project.forget",
        description="Removes all that is kept of some keys in all pipelines, and proves it",
        doc_md=__doc__,
        schedule=None,
        tags=["sessionlake", "job:forget"],
        params={**keys_params(), "wait": wait_param(), "apply": apply_param(), "dry_run": dry_run_param()},
        **DAG_DEFAULTS,
    ):
        SparkJob(
            config=project,
            task_id="forget",
            command="forget",
            options=["keys_file", "wait", "apply", "dry_run"],
            files=["keys"],
            outlets=[pipeline.results for pipeline in pipelines("forget")],
        )
