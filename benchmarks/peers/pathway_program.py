# /// script
# requires-python = ">=3.11, <3.13"
# dependencies = ["pathway==0.33.0"]
#
# [tool.uv]
# exclude-newer = "2026-11-28T00:00:00Z"
# ///
"""One workload on Pathway, from a folder of CSV files to a CSV file: `benchmarks.peers.pathway` runs it, in an environment of its own.

Argument: JSON with workload, home, batches, grace_ms, size_ms, step_ms, and folder, which has the files of all batches. A batch's files are moved to
where Pathway looks when it has taken the batch before. Prints "start", "batch N" for each batch taken, and "end" when all results are written.
"""

import json
import os
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pathway as pw

QUIET_S = 2
"""How long the results' file must not have grown: a stream of files has no end for Pathway."""
temporal = pw.temporal


class Event(pw.Schema):
    """A row of the files."""

    key: str
    ms: int
    amount: int
    offset: int


def results(case: dict[str, Any], events: pw.Table) -> pw.Table:
    """Return the workload's rows: key, start, end, count, total."""
    size, step, grace = case["size_ms"], case["step_ms"], case["grace_ms"]
    this = pw.this
    if case["workload"] == "join":
        # One source: from two, one side may come so much earlier that events of the other are behind the cutoff.
        left, right = events.filter(this.offset % 2 == 0), events.filter(this.offset % 2 == 1)
        return left.interval_join(
            right,
            left.ms,
            right.ms,
            temporal.interval(-size, size),
            left.key == right.key,
            behavior=temporal.common_behavior(cutoff=grace, keep_results=True),
        ).select(key=left.key, start=left.ms, end=right.ms, count=left.amount, total=right.amount)
    window, behavior = {
        # Pathway's gap is exclusive. It has no behavior for sessions: none is ever forgotten.
        "sessions": (temporal.session(max_gap=step + 1), None),
        "tumbling": (temporal.tumbling(size), temporal.common_behavior(cutoff=grace, keep_results=True)),
        "hopping": (temporal.sliding(step or size, duration=size), temporal.exactly_once_behavior(shift=grace)),
    }[case["workload"]]
    return events.windowby(events.ms, window=window, instance=events.key, behavior=behavior).reduce(
        key=this["_pw_instance"],
        start=this["_pw_window_start"],
        end=this["_pw_window_end"],
        count=pw.reducers.count(),
        total=pw.reducers.sum(this.amount),
    )


class Feed:
    """The files that Pathway gets, a batch at a time."""

    def __init__(self, folder: Path, batches: int, home: Path) -> None:
        self.home, self.batches = home, batches
        self.waiting = sorted(folder.iterdir())
        self.files = len(self.waiting) // batches
        self.events = self.handed = self.number = 0
        (home / "in").mkdir()

    def hand_over(self) -> None:
        """Give the files of the next batch to Pathway."""
        for file in self.waiting[: self.files]:
            self.handed += file.read_bytes().count(b"\n") - 1  # without the header
            file.rename(self.home / "in" / file.name)
        del self.waiting[: self.files]

    def counted(self, key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:  # noqa: FBT001 (Pathway's)
        """Note how many events have been counted."""
        del key, time
        if is_addition and row["of"] == "events":
            self.events = row["count"]

    def taken(self, time: int) -> None:
        """At the end of one of Pathway's steps, if it had the last events of a batch: hand over the next one, or wait for the results of the last."""
        del time
        if self.events < self.handed or self.number == self.batches:
            return
        print("batch", self.number, flush=True)
        self.number += 1
        if self.number < self.batches:
            self.hand_over()
        else:
            Thread(target=self.leave).start()

    def leave(self) -> None:
        """End the process when the results' file has not grown for a while."""
        size, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            time.sleep(0.2)
            if (now := (self.home / "out.csv").stat().st_size) != size:
                size, since = now, time.monotonic()
        print("end", flush=True)
        os._exit(0)


def main() -> None:
    case = json.loads(sys.argv[1])
    home = Path(case["home"])
    feed = Feed(Path(case["folder"]), case["batches"], home)
    events = pw.io.fs.read(home / "in", format="csv", schema=Event, autocommit_duration_ms=500)
    found = results(case, events)
    pw.io.csv.write(found, home / "out.csv")
    # Results are counted, too, so that a step ends when it has them.
    tables = {"events": events, "results": found}
    counts = [table.reduce(of=name, count=pw.reducers.count()) for name, table in tables.items()]
    pw.io.subscribe(counts[0].concat_reindex(counts[1]), on_change=feed.counted, on_time_end=feed.taken)
    feed.hand_over()
    print("start", flush=True)
    kept = pw.persistence.Config(pw.persistence.Backend.filesystem(home / "state"))
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=kept)


if __name__ == "__main__":
    main()
