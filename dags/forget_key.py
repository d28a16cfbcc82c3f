"""
### The right to erasure: removes all that is kept of some keys, and proves it

Sessions or windows, late events, dead letters, data files, logs, stores, validation results; then all of it is searched
again. Only by hand. Stop whatever sends events of the keys first.

Put the keys into a file on the driver's machine, readable by its user only, and name it here. Keys that are typed into
this form reach the driver by such a file too, but Airflow's database keeps them with this run (and its audit log with the
request): delete the run when its proof is filed. The task's log has neither: it names a key by its line and its hash.

**If it is red with "exit code 8":** a key is found still, or a place can't be searched; the log says which. A repeated or
killed run goes on where it was: clear the task, or trigger again with the same keys.
"""

from airflow.sdk import DAG

from sessionlake_airflow.defaults import apply_param, dry_run_param, keys_params, wait_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("forget"):
    with DAG(
        schedule=pipeline.at("forget", None),
        description="Removes all that is kept of some keys, and proves it",
        doc_md=__doc__,
        params={
            **keys_params(),
            "wait": wait_param(),
            "apply": apply_param(),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("forget"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="forget_key",
            command="forget",
            options=["keys_file", "wait", "apply", "dry_run"],
            files=["keys"],
            outlets=[pipeline.results],
        )
