"""Results to the sinks of a config: a compacted Kafka topic, with each change or once rows are final, a plain Delta table, and a table of PostgreSQL."""

from sessionlake.jobs.publish.job import Published, publish, resynced, sinks_of
from sessionlake.jobs.publish.steps import Step

__all__ = ["Published", "Step", "publish", "resynced", "sinks_of"]
