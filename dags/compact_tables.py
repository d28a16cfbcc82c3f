"""
### Keeps the tables small and fast to read

Folds the changelog into the snapshot (`sessions`, `windows`), trims what is folded, puts files in order, vacuums. Readers of
the live view see the same rows before, during and after; the stream goes on beside it.

**If it fails or is late:** nothing is wrong but slow: reads and restores go through more of the changelog. A retry does
what is left.
"""

from airflow.sdk import DAG, Param

from sessionlake_airflow.defaults import dry_run_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

for pipeline in pipelines("compact"):
    with DAG(
        schedule=pipeline.at("compact", "0 */6 * * *"),
        description="Folds the changelog into the snapshot, trims, optimizes and vacuums",
        doc_md=__doc__,
        params={
            "method": Param(
                "auto",
                type="string",
                enum=["auto", "merge", "rewrite"],
                title="Method",
                description="How the changelog is folded into the snapshot; auto takes the cheaper way for its size.",
            ),
            "dry_run": dry_run_param(),
        },
        **pipeline.dag("compact"),
    ):
        SparkJob(config=pipeline.config, task_id="compact_tables", command="compact", options=["method", "dry_run"])
