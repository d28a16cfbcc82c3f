"""
### Reads dead letters again

After the cause is mended (a clock, a setting, an aggregate): rows of `dead_letters` of the given reasons that now keep the
contract join their sessions or windows. By hand only. **Before it:** trigger with *Dry run*; the counts are in the task's XCom.

**Retries and clearing are safe:** all tries of a run are one run of the job (`--run-id`), and a dead letter is redeemed once.

**If it is red with "was overtaken":** another run started after it, or keys were erased; trigger a new run.

Skipped on windows by count and joins, whose messages count in the order in which they came, and on tables.
"""

from airflow.sdk import DAG, Param

from sessionlake_airflow.defaults import apply_param, dry_run_param, time_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("redeem"):
    with DAG(
        schedule=pipeline.at("redeem", None),
        description="Reads dead letters again",
        doc_md=__doc__,
        params={
            "reason": Param(
                "too far in the future",
                type="string",
                minLength=1,
                title="Reason",
                description="As dead_letters has it, whole or up to its colon.",
            ),
            "from": time_param("From", "When the earliest were refused, inclusive, UTC. Empty: from the first."),
            "to": time_param("To", "When the latest were refused, exclusive, UTC. Empty: to the last."),
            "apply": apply_param(),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("redeem"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="redeem_dead_letters",
            command="redeem",
            options=["reason", "from", "to", "apply", "dry_run"],
            outlets=[pipeline.results],
        )
