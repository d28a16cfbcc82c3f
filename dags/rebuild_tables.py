"""
### Computes all events again, into a new warehouse

For example after a change of the key or of an aggregate's definition. Only by hand. The old warehouse stays as it is. *Switch* writes the
new path into the config, which the driver must be able to write: stop the pipeline's run before.

**If it is red:** the new warehouse is half made. Remove it, and trigger again; from the archive just trigger again.
"""

from airflow.sdk import DAG, Param

from sessionlake_airflow.defaults import flag_param
from sessionlake_airflow.job import SparkJob
from sessionlake_airflow.project import pipelines

_FLAGS = {
    "switch": ("Switch", "Then write the new path into the config."),
    "from_topic": ("From the topic", "Kafka: build from the events that the topic still holds."),
    "from_archive": ("From the archive", "Build from the archive; then the stream goes on where the archive ends."),
    "from_what_is_there": ("From what is there", "With the archive: even if it lacks events."),
}

for pipeline in pipelines("rebuild"):
    with DAG(
        schedule=None,
        description="Computes all events again, into a new warehouse",
        doc_md=__doc__,
        params={
            "warehouse": Param(
                None,
                type="string",
                minLength=1,
                title="Warehouse",
                description="A new name, beside the warehouse of now.",
            ),
            **{name: flag_param(title, told) for name, (title, told) in _FLAGS.items()},
        },
        **pipeline.dag("rebuild"),
    ):
        SparkJob(
            config=pipeline.config,
            task_id="rebuild",
            command="rebuild",
            options=["warehouse", *_FLAGS],
            names_run=False,
        )
