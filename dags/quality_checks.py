"""
### Checks the tables, each time sessions or windows were updated

The suites of Great Expectations in `expectations/`. Only if they pass is the asset `NAME.checked` of the pipeline updated:
schedule on it what must not see bad data, for example `schedule=[Asset("visits.checked")]`.

**If it is red:** the log names the checks that failed and rows to look at. There is no retry: the data stays as it is
until somebody acts. The stream goes on; what depends on the asset waits for the next run that passes.
"""

from airflow.sdk import DAG, Param

from sessionlake_airflow.defaults import dry_run_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("quality"):
    with DAG(
        schedule=pipeline.after_results("quality"),
        description="Checks the tables when results were updated; what is scheduled on the checked asset waits for it",
        doc_md=__doc__,
        params={
            "fail_on": Param(
                "critical",
                type="string",
                enum=["critical", "warn"],
                title="Fail on",
                description="Least severity of a failed check that blocks the checked asset.",
            ),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("quality"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="quality_checks",
            command="quality",
            options=["fail_on", "dry_run"],
            judges=True,
            inlets=[pipeline.results],
            outlets=[pipeline.checked],
        )
