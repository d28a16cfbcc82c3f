"""A project's page: the state of each pipeline, the remedy, and the graph with rates on its edges."""

import time
from collections.abc import Mapping
from threading import Event, Thread
from typing import Any

from sessionlake.config.durations import parse_duration, rough_duration
from sessionlake.config.graph import Graph
from sessionlake.config.load import Config
from sessionlake.errors import first_line
from sessionlake.observe.overview import Overview, State, overview, read_tables
from sessionlake.observe.watch import Watch
from sessionlake.project.picture import layout_of
from sessionlake.serve.follower import Follower
from sessionlake.warehouse import schemas

SHOWN = 60
"""The last batches whose rates are shown."""
_LOOK_S, _WATCHED_S = 2.0, 60.0
_SLOW_BATCHES = 3
IDLE, BEHIND = "idle", "behind"
"""States of a running pipeline: no batch for long; batches that take longer than their period, while the lag grows."""
_ADVICE = {
    State.NEW.value: "it has no batches yet: sessionlake run {directory} --once",
    State.STOPPED.value: "{ended}: sessionlake run {directory}",
    State.FAILING.value: "{told}",
    State.UNREADABLE.value: "{told}",
    BEHIND: "{lag} behind and growing: give it more shards or more weight (docs/sizing.md)",
}

_ENDED = {
    True: "it ended as asked; to run it",
    False: "its process ended, and nobody had asked it to; start it again",
    None: "no process runs it here",
}


class Board:
    """A project's pipelines, examined in a separate thread while somebody watches."""

    def __init__(
        self, directory: str, configs: Mapping[str, Config], graph: Graph, followers: Mapping[str, Follower]
    ) -> None:
        self.graph = graph
        self._directory, self._configs, self._followers = directory, configs, followers
        self._tables = {name: Watch(config, read_tables) for name, config in configs.items()}
        self._seen: dict[str, Overview] = {}
        self._asked, self._stopped, self._woken = 0.0, Event(), Event()
        self._thread = Thread(target=self._look_on, name="board", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._woken.set()
        self._thread.join()

    def fields(self) -> dict[str, Any]:
        """Return what the page shows, as JSON values."""
        before, self._asked = self._asked, time.monotonic()
        if self._asked - before > _WATCHED_S:
            # States that were seen before nobody watched may be long over.
            self._seen = {}
            self._woken.set()
        now_us = time.time_ns() // 1000
        pipelines = [self._pipeline(name, now_us) for name in self.graph.names]
        edges = [edge.fields() for edge in self.graph.edges]
        return {
            "directory": self._directory,
            "at": now_us,
            "pipelines": pipelines,
            "outcomes": schemas.OUTCOMES,
            "edges": edges,
            "picture": layout_of(self.graph).fields(),
        }

    def _look_on(self) -> None:
        while not self._stopped.is_set():
            if time.monotonic() - self._asked < _WATCHED_S:
                for name, config in self._configs.items():
                    self._seen[name] = self._looked(name, config)
            self._woken.wait(_LOOK_S)
            self._woken.clear()

    def _looked(self, name: str, config: Config) -> Overview:
        """Return a pipeline's state; whatever is wrong with it, the thread goes on to all others."""
        try:
            return overview(config, self._tables[name].look)
        except Exception as error:  # noqa: BLE001 (see above)
            return Overview(name, config, State.UNREADABLE, None, f"{type(error).__name__}: {first_line(error)}")

    def _pipeline(self, name: str, now_us: int) -> dict[str, Any]:
        config, seen = self._configs[name], self._seen.get(name)
        known = {"name": name, "operator": config.operator, "reads": self.graph.upstream(name)}
        if seen is None:
            return {**known, "state": "unknown", "ended": None, "advice": "", "history": []}
        history = list(self._followers[name].history)[-SHOWN:]
        lag_s, state = seen.lag_s(now_us), _state(config, seen, history, now_us)
        lag = "" if lag_s is None else rough_duration(round(lag_s * 1e6))
        advice = seen.last_run or _ADVICE.get(state, "").format(
            directory=self._directory, told=seen.told, lag=lag, ended=_ENDED[seen.ended]
        )
        if seen.status is not None and not seen.status.reconciles:
            advice = f"the counts and the tables' rows differ: sessionlake status of {name} says more"
        elif not advice and seen.verdict is False:
            advice = "the last quality run is red: its rows are in quality_results"
        counts = seen.status.counts if seen.status else {}
        return {
            **known,
            "state": state,
            "ended": seen.ended,
            "advice": advice,
            "batch_id": seen.status.batch_id if seen.status else None,
            "lag_us": None if lag_s is None else round(lag_s * 1e6),
            "events_per_second": _rate(history, now_us),
            "history": [[row["committed_at"], row["input"] / _seconds(row)] for row in history],
            "counts": {what: counts.get(what, 0) for what in ("input", *schemas.OUTCOMES)},
            "store_bytes": seen.status.store_bytes if seen.status else 0,
            "reconciles": seen.status.reconciles if seen.status else None,
            "jobs": [{"job": run.job, "at": run.at, "finished": run.finished} for run in seen.jobs],
            "quality": seen.verdict,
        }


def _state(config: Config, one: Overview, history: list[Mapping[str, Any]], now_us: int) -> str:
    if one.state is not State.RUNNING or one.status is None:
        return one.state.value
    if now_us - one.status.committed_us > config.pipeline.quiet_after_us:
        return IDLE
    return BEHIND if _falls_behind(config, history[-_SLOW_BATCHES:]) else State.RUNNING.value


def _falls_behind(config: Config, last: list[Mapping[str, Any]]) -> bool:
    """Say whether each of the last batches took longer than the period of the trigger, and the lag grew with each."""
    period_us = parse_duration(config.pipeline.trigger)
    lags = [row["committed_at"] - row["watermark"] for row in last if row["watermark"] is not None]
    slow = all(row["committed_at"] - row["started_at"] > max(period_us, 1) for row in last)
    return len(lags) == _SLOW_BATCHES and slow and lags == sorted(set(lags))


def _rate(history: list[Mapping[str, Any]], now_us: int) -> float:
    """Return the events a second of the last minute."""
    recent = [row for row in history if now_us - row["committed_at"] < 60_000_000]
    return sum(row["input"] for row in recent) / 60


def _seconds(row: Mapping[str, Any]) -> float:
    return max((row["committed_at"] - row["started_at"]) / 1e6, 1e-3)
