"""The followers of a pipeline: the pipelines behind it and its sinks, and the batch that each has reached. Light: `status` reads them without Spark."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Literal, NoReturn

from sessionlake.config.load import Config
from sessionlake.config.secrets import hide
from sessionlake.config.source import DATABASE, FUNCTION, TABLE, TOPIC
from sessionlake.errors import PipelineStateError, SessionlakeError, first_line, without_values
from sessionlake.warehouse.arrow_files import ArrowFiles
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after, last_batch
from sessionlake.warehouse.database_position import position_in_database
from sessionlake.warehouse.delta_log import LogFiles, Logs
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.seen import Reader, Visible, readers_of
from sessionlake.warehouse.sink_position import Position, Warehouse, newest_position, table_in
from sessionlake.warehouse.topic_position import newest_record, published_in, published_version

ANSWER_S = 3.0
"""The time limit of a look at all followers: a follower that has not answered by then can't be read."""
_CONNECT_S = 2


@dataclass(frozen=True)
class Reached:
    """The batch up to which a follower has the results; -1 and -1 if it has none."""

    batch_id: int
    version: int
    """The changelog's version at that batch, or a later version without a batch in between."""


NOTHING = Reached(-1, -1)


@dataclass(frozen=True)
class Follower:
    """A follower, and how its position is read."""

    name: str
    """A pipeline's name, or that of a sink as the config has it: sink.delta."""
    kind: Literal["pipeline", "sink"]
    read: Callable[[], Reached | None]
    """Returns how far it is, None if it is none any more: its tables are gone; or raises."""


@dataclass(frozen=True)
class FollowerState:
    """How far a follower is."""

    name: str
    kind: str
    batch_id: int | None
    """The last batch that it has; None if it has none, or can't be read."""
    behind: int | None
    """How many batches it lacks; None if it can't be read."""
    lacks_since_us: int | None
    """When the first batch that it lacks was committed; None if it lacks none, or can't be read."""
    unreadable: str | None = None
    """Why the position can't be read, in one line, without secrets; None if it can."""

    def behind_s(self, now_us: int) -> float | None:
        """Return for how many seconds it has lacked a batch; None if it can't be read."""
        if self.unreadable is not None:
            return None
        return 0.0 if self.lacks_since_us is None else max(0, now_us - self.lacks_since_us) / 1e6


@dataclass(frozen=True)
class Places:
    """The results of a pipeline, and the places in which followers note how far they are."""

    config: Config
    logs: Logs
    """Of the pipeline's tables."""
    files: LogFiles
    warehouse: Warehouse

    @classmethod
    def without_spark(cls, config: Config) -> "Places":
        """Return a pipeline's places as they are read without Spark."""
        return cls(config, Lake.of(config), ArrowFiles(), Lake)

    def followers(self) -> list[Follower]:
        """Return the pipelines that have read the results, and the sinks of the config."""
        return [*self._behind(), *(self._sink(name) for name in self.config.sink.targets)]

    def _behind(self) -> list[Follower]:
        try:
            found = readers_of(self.files, self.logs.warehouse)
        except (OSError, ValueError) as error:  # of an object store without credentials here
            return [Follower("pipelines behind", "pipeline", partial(_raise, error))]
        readers: dict[str, list[Reader]] = {}
        for one in found:
            readers.setdefault(one.name, []).append(one)
        return [Follower(name, "pipeline", partial(self._read_by, each)) for name, each in readers.items()]

    def _read_by(self, readers: Sequence[Reader]) -> Reached | None:
        """Return how far a pipeline is. It has left a file for each input that reads the results, and for each directory in which its config was."""
        found = list[Reached]()
        for one in readers:
            theirs = self.warehouse(one.warehouse, self.logs.changelog)
            if theirs[one.changes].exists():
                found.append(self._seen(one.seen(theirs), "has read"))
        return min(found, key=lambda at: at.batch_id, default=None)

    def _seen(self, seen: Visible | None, how: str) -> Reached:
        if seen is None:
            return NOTHING
        if not seen.is_in(self.logs):
            raise PipelineStateError(
                f"it {how} another {self.config.pipeline.name!r}, which was rebuilt or put back since"
            )
        return Reached(seen.batch_id, seen.version)

    def _sink(self, name: str) -> Follower:
        read = {TABLE: self._table, DATABASE: self._database, FUNCTION: self._function, TOPIC: self._topic}[name]
        return Follower(f"sink.{name}", "sink", read)

    def _table(self) -> Reached:
        return self._stepped(newest_position(table_in(self.config, self.warehouse)))

    def _database(self) -> Reached:
        return self._stepped(position_in_database(self.config, _CONNECT_S))

    def _function(self) -> Reached:
        text = newest_record(self.files, f"{published_in(self.config)}/{FUNCTION}")
        return self._stepped(None if text is None else Position.read(json.loads(text)))

    def _stepped(self, found: Position | None) -> Reached:
        return self._seen(None if found is None else found.seen, "has the rows of")

    def _topic(self) -> Reached:
        version = published_version(self.files, self.config)
        if version < 0:
            return NOTHING
        later = next(batches_after(self.logs, version), None)
        return Reached(last_batch(self.logs).batch_id if later is None else later.batch_id - 1, version)


def followers_of(config: Config) -> list[FollowerState]:
    """Return how far the followers of a pipeline are, which has batches. It takes ANSWER_S at most for all of them."""
    places = Places.without_spark(config)
    last = last_batch(places.logs)
    return [_state(places.logs, last, one, at) for one, at in read_all(config, places.followers())]


def _state(logs: Logs, last: BatchCommit, one: Follower, at: Reached | str) -> FollowerState:
    if isinstance(at, str):
        return FollowerState(one.name, one.kind, None, None, None, at)
    behind = max(0, last.batch_id - at.batch_id)
    lacked = next(batches_after(logs, at.version), None) if behind else None
    reached = None if at is NOTHING else at.batch_id
    return FollowerState(one.name, one.kind, reached, behind, None if lacked is None else lacked.committed_us)


class _Reading(Thread):
    """A reading of a follower's position, which may never end: a database that has stopped does not answer."""

    def __init__(self, follower: Follower) -> None:
        super().__init__(name=f"follower-{follower.name}", daemon=True)
        self._follower = follower
        self.found: Reached | str | None = None

    def run(self) -> None:
        """Read the position, or the reason for which that can't be done."""
        try:
            self.found = self._follower.read()
        except SessionlakeError as error:
            self.found = hide(first_line(error))
        except Exception as error:  # noqa: BLE001 (whatever it is, the others are read)
            self.found = hide(without_values(error))


_readings: dict[tuple[str, str], _Reading] = {}
"""The last reading, by pipeline and follower: while it hangs, no other reading begins."""


def read_all(config: Config, followers: Sequence[Follower]) -> list[tuple[Follower, Reached | str]]:
    """Return each follower with its position, or with the line that says why the position can't be read; takes ANSWER_S at most."""
    until, begun = time.monotonic() + ANSWER_S, list[_Reading]()
    for one in followers:
        key = config.checkpoint, one.name
        if key not in _readings or not _readings[key].is_alive():
            _readings[key] = _Reading(one)
            _readings[key].start()
        begun.append(_readings[key])
    found: list[tuple[Follower, Reached | str]] = []
    for one, reading in zip(followers, begun, strict=True):
        reading.join(max(0.0, until - time.monotonic()))
        at = f"no answer in {ANSWER_S:.0f} seconds" if reading.is_alive() else reading.found
        found += [] if at is None else [(one, at)]
    return found


def _raise(error: Exception) -> NoReturn:
    raise error
