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

from airflow.sdk import DAG, Param

from sessionlake_airflow.defaults import DAG_DEFAULTS, SESSIONS, apply_param, config_param, dry_run_param
from sessionlake_airflow.job import SparkJob

with DAG(
    "forget_key",
    description="Removes all that is kept of some keys, and proves it",
    doc_md=__doc__,
    schedule=None,
    tags=["sessionlake", "privacy"],
    params={
        "config": config_param(),
        "keys_file": Param(
            None,
            type=["null", "string"],
            title="File with the keys",
            description="Path on the driver's machine, a key a line, readable by its user only (mode 0600).",
        ),
        "keys": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            title="Keys",
            description="Where there is no file: keys, one a line. Airflow keeps them with this run until that is deleted.",
        ),
        "wait": Param(
            "10 minutes", type="string", title="Wait", description="How long to wait for a stream that runs."
        ),
        "apply": apply_param(),
        "dry_run": dry_run_param(),
    },
    **DAG_DEFAULTS,
):
    SparkJob(
        task_id="forget_key",
        command="forget",
        options=["keys_file", "wait", "apply", "dry_run"],
        files=["keys"],
        outlets=[SESSIONS],
    )
