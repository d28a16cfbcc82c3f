"""Sessions or windows to a compacted Kafka topic: with each change, or once they are final."""

from sessionlake.jobs.publish.job import Published, newest_checkpoint, publish

__all__ = ["Published", "newest_checkpoint", "publish"]
