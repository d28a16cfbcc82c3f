"""
### Computes a day's sessions or windows from the events again

Corrects those that differ, and only those: of a range that is as it should be nothing changes, however often it runs. Every
night for the day before, as an audit; for a range of days `airflow backfill create --dag-id NAME.backfill --from-date
2026-01-01 --to-date 2026-01-31`; by hand with *From* and *To*.

Runs beside the stream. Late events of the days are taken in too. **If it is red with "overtook":** another job
restated the same meanwhile; trigger it again.

Skipped on windows by count and joins, whose messages count in the order in which they came; on tables; and if all of the day
is beyond the retention of windows that overlap.
"""

from datetime import UTC, datetime

from airflow.sdk import DAG

from sessionlake_airflow.defaults import apply_param, dry_run_param, time_param
from sessionlake_airflow.exit_codes import NO_BATCHES
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("backfill"):
    with DAG(
        schedule=pipeline.intervals("backfill", "0 0 * * *"),
        description="Computes a day's sessions or windows from the events again and corrects those that differ",
        doc_md=__doc__,
        start_date=datetime(2000, 1, 1, tzinfo=UTC),  # backfills may reach back as far
        params={
            "from": time_param("From", "What reaches this time or later, UTC. Empty: the run's data interval."),
            "to": time_param("To", "Exclusive, UTC. Empty: the run's data interval."),
            "apply": apply_param(),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("backfill"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="backfill_sessions",
            command="backfill",
            options=["from", "to", "apply", "dry_run"],
            interval=True,
            skip_on=[NO_BATCHES],
            outlets=[pipeline.results],
        )
