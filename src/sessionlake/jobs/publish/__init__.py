"""Results to the sinks of a config: a compacted Kafka topic, with each change or once rows are final, and a plain Delta table."""

from sessionlake.jobs.publish.job import Published, newest_checkpoint, publish, sinks_of
from sessionlake.jobs.publish.table import Step

__all__ = ["Published", "Step", "newest_checkpoint", "publish", "sinks_of"]
