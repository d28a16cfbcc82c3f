"""
### Makes late events part of their sessions

Takes the events of `late_events` (past grace, within retention) that no run has taken yet, and restates their sessions;
those that fell out of retention meanwhile go to `dead_letters`. Daily, or by hand for a range of event times.

**Retries and clearing are safe:** all tries of a run are one run of the job (`--run-id`). A cleared run that had finished
does nothing; to take what came since, trigger a new one.

**If it is red with "no batches yet":** the sessionizer has not run on this pipeline.

Skipped on tables and on windows by count: they have no late events.
"""

from airflow.sdk import DAG, CronTriggerTimetable

from sessionlake_airflow.defaults import DAG_DEFAULTS, SESSIONS, apply_param, config_param, dry_run_param, time_param
from sessionlake_airflow.job import SparkJob

with DAG(
    "reprocess_late",
    description="Makes late events part of their sessions",
    doc_md=__doc__,
    schedule=CronTriggerTimetable("0 2 * * *", timezone="UTC"),
    tags=["sessionlake", "maintenance"],
    params={
        "config": config_param(),
        "from": time_param("From", "Event time of the earliest late events, inclusive, UTC. Empty: from the first."),
        "to": time_param("To", "Event time of the latest late events, exclusive, UTC. Empty: to the last."),
        "apply": apply_param(),
        "dry_run": dry_run_param(),
    },
    **DAG_DEFAULTS,
):
    SparkJob(
        task_id="reprocess_late",
        command="reprocess-late",
        options=["from", "to", "apply", "dry_run"],
        outlets=[SESSIONS],
    )
