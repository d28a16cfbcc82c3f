"""
### Makes late events part of their sessions

Takes the events of `late_events` (past grace, within retention) that no run has taken yet, and restates their sessions;
those that fell out of retention meanwhile go to `dead_letters`. Daily, or by hand for a range of event times.

**Retries and clearing are safe:** all tries of a run are one run of the job (`--run-id`). A cleared run that had finished
does nothing; to take what came since, trigger a new one.

**If it is red with "no batches yet":** the pipeline has not run yet.

Skipped on tables and on windows by count: they have no late events.
"""

from airflow.sdk import DAG

from sessionlake_airflow.defaults import apply_param, dry_run_param, time_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("reprocess_late"):
    with DAG(
        schedule=pipeline.at("reprocess_late", "0 2 * * *"),
        description="Makes late events part of their sessions",
        doc_md=__doc__,
        params={
            "from": time_param(
                "From", "Event time of the earliest late events, inclusive, UTC. Empty: from the first."
            ),
            "to": time_param("To", "Event time of the latest late events, exclusive, UTC. Empty: to the last."),
            "apply": apply_param(),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("reprocess_late"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="reprocess_late",
            command="reprocess-late",
            options=["from", "to", "apply", "dry_run"],
            outlets=[pipeline.results],
        )
