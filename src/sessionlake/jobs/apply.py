"""The pass of the sessionizer that a job ends with, so that its corrections take effect where no stream runs."""

from pyspark.sql import SparkSession

from sessionlake.config import Config
from sessionlake.errors import LockedError
from sessionlake.jobs.sessionizer.run import OnCommit, run


def apply_corrections(spark: SparkSession, config: Config, on_commit: OnCommit | None = None) -> bool:
    """Run one pass over all available input; False where a stream on this machine runs and will do it.

    A stream on another machine is not seen: there, start jobs with --no-apply.
    """
    try:
        run(spark, config, once=True, on_commit=on_commit)
    except LockedError:
        return False
    return True
