"""Spark's jobs that are cancelled while they run: what they need is gone, or they take too long."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.5


@contextmanager
def cancelled_if(spark: SparkSession, due: Callable[[], bool]) -> Iterator[threading.Event]:
    """Cancel the jobs that this thread starts within, as soon as `due` says so; yield the event that is set then.

    The tasks of cancelled jobs end, and workers in Python that do not are killed.
    """
    context, tag, ended, cancelled = spark.sparkContext, str(uuid.uuid4()), threading.Event(), threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOK_SECONDS):
            if cancelled.is_set() or due():
                cancelled.set()
                # Again and again: the job may be about to start.
                context.cancelJobsWithTag(tag)

    watcher = threading.Thread(target=watch, name="watcher", daemon=True)
    context.addJobTag(tag)
    watcher.start()
    try:
        yield cancelled
    finally:
        ended.set()
        context.removeJobTag(tag)
        watcher.join()


@contextmanager
def within(spark: SparkSession, seconds: float, error: Exception) -> Iterator[None]:
    """Cancel the jobs that this thread starts within if they have not ended after a time, and raise an error then."""
    deadline = time.monotonic() + seconds
    with cancelled_if(spark, lambda: time.monotonic() > deadline) as cancelled:
        try:
            yield
        except Exception as failure:
            if cancelled.is_set():
                raise error from failure
            raise
