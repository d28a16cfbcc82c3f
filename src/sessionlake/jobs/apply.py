"""The pass of the stream at the end of a job: its corrections take effect although no stream runs."""

import socket
import time

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import LockedError
from sessionlake.stream.run import OnCommit, run
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.tables import Tables


def apply_corrections(spark: SparkSession, config: Config, on_commit: OnCommit | None = None) -> bool:
    """Run one pass over all available input; False if a stream runs here or elsewhere, and will do it.

    A stream on another machine is known by its commits: while the last one is younger than three triggers (half a minute
    at least) and names another host. One that has been idle for longer is not seen: there, start jobs with --no-apply.
    """
    if stream_elsewhere(spark, config) is not None:
        return False
    try:
        run(spark, config, once=True, on_commit=on_commit, of_job=True)
    except LockedError:
        return False
    return True


def stream_elsewhere(spark: SparkSession, config: Config, now_us: int | None = None) -> str | None:
    """Return the other host whose driver has just committed a batch; None if there is none."""
    last = find_last_batch(Tables.of(spark, config))
    if last is None:
        return None
    age_us = (time.time_ns() // 1000 if now_us is None else now_us) - last.committed_us
    recent = age_us < config.pipeline.quiet_after_us
    host = last.driver
    return host if recent and host not in (None, socket.gethostname()) else None
