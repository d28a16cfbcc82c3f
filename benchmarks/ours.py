"""This engine's cases. They run on older commits of it too, so they use only what all of them have."""

import os
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sessionlake
from benchmarks.cpu import tree_cpu_s
from benchmarks.memory import end_sampling
from benchmarks.package import Config, Tables, committed_s, merged_rows, parse_config, run
from benchmarks.synthetic import GAP, GRACE, RETENTION
from sessionlake.engine.spark import build_session

Found = dict[str, Any]


def make_config(home: Path, case: Found) -> Config:
    source = case.get("source") or {
        "kind": "files",
        "path": case["events"],
        "format": case["format"],
        "max_files_per_batch": case["files"],
    }
    return parse_config(
        {
            "pipeline": {
                "name": "bench",
                "warehouse": "warehouse",
                "shards": case["shards"],
                "trigger": case.get("trigger", "0 s"),
                **case.get("pipeline", {}),
            },
            "source": source,
            "event": {"key": "key", "time": "ts", **case.get("event", {})},
            "session": {"gap": GAP, "grace": GRACE, "retention": RETENTION, **case.get("session", {})},
            **case.get("more", {}),
            "aggregates": case.get("aggregates", {"total": "sum(amount)"}),
        },
        home,
    )


def open_session(case: Found) -> SparkSession:
    return build_session(
        "bench",
        master="local[2]",
        shuffle_partitions=case["shards"],
        driver_memory=case["driver_memory"],
        extra_conf=case["conf"],
    )


def about() -> Found:
    return {"package": str(Path(sessionlake.__file__).parent)}


class Commits:
    """When each batch was committed, and CPU seconds a batch from a number of batches on, of the first quarter else."""

    def __init__(self, batches: int, first: int | None = None) -> None:
        self._batches, self._first = batches, max(1, batches // 4) if first is None else first
        self._at = [time.time()]
        self._cpu_s = [0.0, 0.0]

    def __call__(self, batch: Any) -> None:
        """Take a commit; the two looks at the processes' CPU time cost some milliseconds each.

        A batch without events is not counted: the last one of a run may send what waits for a period of the clock.
        """
        if not batch.counts.get("input"):
            return
        self._at.append(committed_s(batch))
        done = len(self._at) - 1
        if done in (self._first, self._batches):
            self._cpu_s[done == self._batches] = tree_cpu_s()

    def found(self) -> Found:
        """Return the seconds from one commit to the next: all that a batch costs, the stream's bookkeeping too."""
        seconds = [round(b - a, 3) for a, b in zip(self._at, self._at[1:], strict=False)]
        if len(seconds) != self._batches:
            raise SystemExit(f"{len(seconds)} batches were committed, not {self._batches}")
        cpu_s = (self._cpu_s[1] - self._cpu_s[0]) / max(1, self._batches - self._first)
        return {"seconds": seconds, "cpu_s": round(cpu_s, 3)}


def stream(case: Found) -> Found:
    """Run over all events there are; with `count`, say what all sessions add up to."""
    spark, config = open_session(case), make_config(Path(case["home"]), case)
    commits = Commits(case["batches"])
    run(spark, config, once=True, on_commit=commits)
    found = about() | commits.found()
    if case.get("count"):
        end_sampling(case["home"])
        found |= _added_up(spark, config)
    spark.stop()
    return found


def file_to_commit(case: Found) -> Found:
    """Take the time from a file's appearance to its Delta commit, in a running stream, file by file."""
    spark, source = open_session(case), Path(case["home"], "events")
    source.mkdir()
    files = sorted(Path(case["events"]).iterdir())
    config = make_config(Path(case["home"]), case | {"events": str(source)})
    committed = threading.Event()
    commits = Commits(len(files))
    landed: list[float] = []
    took: list[float] = []

    def on_commit(batch: Any) -> None:
        commits(batch)
        took.append(committed_s(batch))
        committed.set()

    def feed() -> None:
        for file in files:
            committed.clear()
            # A rename within one file system, as a file that appears whole; its time is what the stream orders by.
            ready = source.with_name(file.name)
            ready.write_bytes(file.read_bytes())
            os.utime(ready)
            landed.append(time.time())
            ready.rename(source / file.name)
            if not committed.wait(60):
                break
        for query in spark.streams.active:
            query.stop()

    feeder = threading.Thread(target=feed)
    ready = source / "first.parquet"
    ready.write_bytes(files[0].read_bytes())
    run(spark, config, once=True)
    feeder.start()
    run(spark, config, on_commit=on_commit)
    feeder.join()
    found = commits.found()
    seconds = [round(b - a, 3) for a, b in zip(landed, took, strict=True)]
    spark.stop()
    return about() | found | {"seconds": seconds}


def stored(case: Found) -> Found:
    """Store the sessions of one folder of events by a bootstrap, then run over another's batches, with more aggregates if `added` has any."""
    spark, home = open_session(case), Path(case["home"])
    events = home / "events"
    events.mkdir()
    _appear(Path(case["before"]), events, "a", time.time() - 3600)
    run(spark, make_config(home, case | {"events": str(events)}), bootstrap=True)
    more = {"aggregates": case["aggregates"] | case["added"]} if "added" in case else {}
    config = make_config(home, case | {"events": str(events)} | more)
    _appear(Path(case["events"]), events, "b", time.time())
    commits = Commits(case["batches"])
    run(spark, config, once=True, on_commit=commits)
    spark.stop()
    return about() | commits.found()


def _appear(files: Path, source: Path, prefix: str, first: float) -> None:
    """Link files into a source's folder, a second apart by their times, by which a stream orders them."""
    for i, file in enumerate(sorted(files.iterdir())):
        os.utime(file, (first + i, first + i))
        os.link(file, source / f"{prefix}-{file.name}")


def _added_up(spark: SparkSession, config: Config) -> Found:
    # Only the present commit is asked: older ones have neither all of these modules nor these arguments.
    from pyspark.sql import functions as F  # noqa: PLC0415

    from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG  # noqa: PLC0415

    sums = [F.count("*"), F.sum("event_count"), F.sum("total")]
    row = merged_rows(Tables(spark, config.pipeline.warehouse, CHANGELOG)).agg(*sums).head()
    return {"added_up": list(row or ())}
