"""Sessions as a user of PySpark writes them: `transformWithStateInPandas`, with a list of open sessions for each key, and timers of event time."""

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.peers.spark import spark_measured
from benchmarks.peers.workloads import Workload

SESSION = "start long, end long, count long, total long"
RESULTS = ("key", "start", "end", "count", "total")


class SessionProcessor(StatefulProcessor):
    """Adds a key's events to its open sessions, and sends a session when no event can reach it any more."""

    def __init__(self, gap_ms: int) -> None:
        self.gap_ms = gap_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.handle = handle
        self.sessions = handle.getListState("sessions", SESSION)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 (Spark's names)
        """Merge the events of a batch into the sessions; nothing is sent."""
        del key, timerValues
        events = [(ms, ms, 1, amount) for part in rows for ms, amount in zip(part["ms"], part["amount"], strict=True)]
        merged: list[tuple[int, ...]] = []
        for start, end, count, total in sorted([*self.sessions.get(), *events]):
            if merged and start - merged[-1][1] <= self.gap_ms:
                first, last, counted, summed = merged[-1]
                merged[-1] = (first, max(last, end), counted + count, summed + total)
            else:
                merged.append((start, end, count, total))
        self.sessions.put(merged)
        self._await(merged)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 (Spark's names)
        """Send the sessions that the watermark has closed."""
        del expiredTimerInfo
        open_, closed = [], []
        for session in self.sessions.get():
            is_closed = session[1] + self.gap_ms <= timerValues.getCurrentWatermarkInMs()
            (closed if is_closed else open_).append(tuple(session))
        if open_:
            self.sessions.put(open_)
            self._await(open_)
        else:
            self.sessions.clear()
        if closed:
            yield pd.DataFrame([(*key, *session) for session in closed], columns=RESULTS)

    def _await(self, sessions: list[tuple[int, ...]]) -> None:
        self.handle.registerTimer(min(end for _, end, *_ in sessions) + self.gap_ms)


def transform_with_state_peer(case: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of each micro-batch with input."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's own choice is the system's python3
    found = spark_measured(case, {"sessions": _sessions})
    return found | {"settings": f"transformWithStateInPandas; {found['settings']}"}


def _sessions(events: Callable[[str], DataFrame], workload: Workload) -> DataFrame:
    results = f"key string, {SESSION}"
    grouped = events("events").groupBy("key")
    return grouped.transformWithStateInPandas(SessionProcessor(workload.step_ms), results, "Append", "EventTime")
