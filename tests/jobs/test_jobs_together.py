"""All scheduled jobs at once, again and again, beside a live stream; then the invariants hold."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import JobError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.run import JobReport
from sessionlake.quality.run import run_quality
from sessionlake.stream.run import run
from tests.jobs.late.late_support import AGGREGATES, SESSION, Late, events, sessionized
from tests.support import make_config, write_rows

FILES = 16
WHOLE: Any = {"from_us": 0, "to_us": 1_000_000}
BOT = "session_key = 'f'"


class Crowd:
    """A stream and jobs, each in a thread of its own, the jobs started again whenever they end."""

    def __init__(self, spark: SparkSession, config: Config, jobs: dict[str, Callable[[], JobReport]]) -> None:
        self.spark, self.config, self.jobs = spark, config, jobs
        self.done, self.failures = Counter[str](), list[BaseException]()
        self.ended, self.committed = threading.Event(), threading.Condition()

    def run(self, feed: Iterator[object]) -> None:
        """Work until the stream has committed a batch for each thing fed."""
        streams = threading.Thread(target=self._guarded, args=(self._stream,))
        workers = [threading.Thread(target=self._guarded, args=(partial(self._again, name),)) for name in self.jobs]
        for thread in (streams, *workers):
            thread.start()
        with self.committed:
            for _ in feed:
                assert self.committed.wait(120) or self.failures
                if self.failures:
                    break
        self.ended.set()
        for thread in workers:
            thread.join()
        for query in self.spark.streams.active:
            query.stop()
        streams.join()
        if self.failures:
            raise self.failures[0]

    def _stream(self) -> None:
        run(self.spark, self.config, on_commit=self._notify)

    def _notify(self, _: object) -> None:
        with self.committed:
            self.committed.notify_all()

    def _again(self, name: str) -> None:
        while not self.ended.is_set():
            try:
                self.jobs[name]()
                self.done[name] += 1
            except JobError:
                self.done[f"{name} gave way"] += 1

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (the test's thread tells it)
            self.failures.append(error)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_five_jobs_beside_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    files = events(11, files=FILES)
    config = make_config(
        tmp_path,
        pipeline={"trigger": "1 second"},
        session={**SESSION, "retention": "100000 us"},
        aggregates=AGGREGATES,
        compact={"safety": "0 seconds"},
    )
    write_rows(tmp_path, "0.json", files[0])
    run(spark, config, once=True)
    jobs: dict[str, Callable[[], JobReport]] = {
        "reprocess": lambda: reprocess_late(spark, config),
        "expire": lambda: expire(spark, config, where=BOT),
        "compact": lambda: compact(spark, config),
        "backfill": lambda: backfill(spark, config, **WHOLE),
        "quality": lambda: run_quality(spark, config, data_docs=tmp_path / "quality"),
    }
    crowd = Crowd(spark, config, jobs)
    crowd.run(write_rows(tmp_path, f"{number}.json", files[number]) for number in range(1, FILES))
    # Of reprocess and backfill the earlier gives way to the later, again and again maybe.
    assert all(crowd.done[name] + crowd.done[f"{name} gave way"] for name in jobs), crowd.done

    apply_corrections(spark, config)
    for name in ("reprocess", "expire", "backfill", "expire"):
        jobs[name]()
        apply_corrections(spark, config)
    late = Late(spark, tmp_path, config)
    expected = sessionized([event for file in files for event in file if event["key"] != "f"])
    assert late.sessions() == expected
    status = late.status()
    assert (status.expired, status.waiting) == (0, 0)
    assert jobs["quality"]().counts["failed_critical"] == 0
    compact(spark, config)
    assert late.sessions() == expected
    assert backfill(spark, config, **WHOLE).counts["corrections"] == 0
