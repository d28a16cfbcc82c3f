"""
### Removes expired sessions or windows

By the rule of the config's section `[expire]`, or by the one given here: an age, SQL over a row, or both. Each
gets one tombstone, ever; one that changed in between survives, and so does a window that is not closed. Skipped where no
rule says what expires.

**Before a new rule:** trigger with *Dry run*; the counts are in the task's XCom. **Retries and clearing are safe:** all
tries of a run are one run of the job (`--run-id`).
"""

from airflow.sdk import DAG, Param

from sessionlake_airflow.defaults import apply_param, dry_run_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("expire"):
    with DAG(
        schedule=pipeline.at("expire", "30 2 * * *"),
        description="Removes expired sessions or windows: by age, or by any SQL",
        doc_md=__doc__,
        params={
            "ttl": Param(
                None,
                type=["null", "string"],
                title="Time to live",
                description="After the end, as in '90 days'. Empty: the config's rule.",
            ),
            "where": Param(
                None, type=["null", "string"], title="Where", description="SQL over a row, as in event_count > 1000."
            ),
            "max_per_run": Param(
                None, type=["null", "integer"], minimum=1, title="At most", description="Rows to remove in this run."
            ),
            "max_share": Param(
                None,
                type=["null", "number"],
                exclusiveMinimum=0,
                maximum=1,
                title="Largest share",
                description="A run that would remove more of all there are fails. Empty: the config's, or 0.2.",
            ),
            "apply": apply_param(),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("expire"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="expire_sessions",
            command="expire",
            options=["ttl", "where", "max_per_run", "max_share", "apply", "dry_run"],
            outlets=[pipeline.results],
        )
