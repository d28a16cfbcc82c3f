"""
### The right to erasure: removes all that is kept of some keys, and proves it

Sessions, late events, dead letters, data files, logs, stores; then all of it is searched again. Only by hand. Stop whatever
sends events of the keys first.

**If it is red with "exit code 1":** the proof found a key still; the log says where. Where a stream runs, its store is
cleared a little later: trigger again with the same keys. A killed run is repeated the same way.

The keys stand in this run's configuration in Airflow: delete the run when its proof is filed.
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
        "keys": Param(
            type="array",
            items={"type": "string", "minLength": 1},
            minItems=1,
            title="Keys",
            description="Session keys, one a line.",
        ),
        "wait": Param(
            "10 minutes", type="string", title="Wait", description="How long to wait for a stream that runs."
        ),
        "apply": apply_param(),
        "dry_run": dry_run_param(),
    },
    **DAG_DEFAULTS,
):
    SparkJob(task_id="forget_key", pipeline="forget", options=["wait", "apply", "dry_run", "keys"], outlets=[SESSIONS])
