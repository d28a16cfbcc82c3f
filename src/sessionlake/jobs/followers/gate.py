"""Back-pressure: a stream takes no batch while a follower is more than `max_lag` batches behind it.

In Samza an operator blocks its input if the operator downstream refuses outputs. Here the changelog always holds the
outputs, and `max_lag` bounds how far a follower may fall behind. So a stream that goes on without a follower loses nothing either.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Event

from sessionlake.config.load import Config
from sessionlake.config.source import TOPIC
from sessionlake.jobs.followers.positions import Follower, Places, Reached, read_all
from sessionlake.stream.run import Gate
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.tables import Tables

UNREADABLE_S = 600.0
"""For how long a stream waits for a follower whose position can't be read."""
_AGAIN_S, _LOOK_S, _FAR_LOOK_S = 600.0, 0.5, 60.0
_log = logging.getLogger("sessionlake")


@dataclass(frozen=True)
class Late:
    """A follower that is too far behind."""

    key: str
    """Of the limit, in the config."""
    follower: Follower
    most: int
    behind: int | None
    """How many batches it lacks; None if it can't be read."""
    unreadable: str = ""

    @property
    def who(self) -> str:
        """The follower in words."""
        return f"pipeline {self.follower.name!r}" if self.follower.kind == "pipeline" else self.follower.name

    @property
    def told(self) -> str:
        """How far it is behind, in words."""
        if self.behind is None:
            return f"how far {self.who} is can't be read ({self.unreadable}), so it counts as behind"
        return f"{self.who} is {self.behind:,} batches behind, more than {self.most:,}"

    @property
    def remedy(self) -> str:
        """What lets it catch up."""
        if self.follower.kind == "pipeline":
            return "run it, or delete its tables if it is not used any more"
        return "run `sessionlake publish`, or remove its section if it is not used any more"


def limits_of(config: Config) -> Mapping[str, tuple[str, int]]:
    """Return, by the follower's name, the key and the limit of each sink with a limit of its own."""
    sink = config.sink.kafka
    own = None if sink is None else sink.max_lag
    return {} if own is None else {f"sink.{TOPIC}": ("sink.kafka.max_lag", own)}


@dataclass
class Limits:
    """The followers of a stream whose lag is limited, and their last known positions."""

    places: Places
    _known: dict[str, int] = field(default_factory=dict, init=False)
    """The batch that each had when it was read last: it never goes back by itself, so it need not be read before each batch."""
    _unreadable: dict[str, float] = field(default_factory=dict, init=False)
    """When each that can't be read was waited for first."""
    _next_look: dict[str, float] = field(default_factory=dict, init=False)
    """When to read each follower again that the stream has gone on without."""

    @property
    def exist(self) -> bool:
        """Whether any follower may be waited for."""
        return self.places.config.pipeline.max_lag is not None or bool(limits_of(self.places.config))

    def late(self) -> Iterator[Late]:
        """Yield the followers that are too far behind or can't be read, unless the wait for them was long enough."""
        last = find_last_batch(self.places.logs)
        if last is None:
            return
        limited = self._limited()
        asked = [one for one, _, most in limited.values() if self._may_be_late(one.name, most, last.batch_id)]
        for one, at in read_all(self.places.config, asked):
            _, key, most = limited[one.name]
            if isinstance(at, str):
                yield from self._unread(Late(key, one, most, None, at))
                continue
            self._read(one, at)
            if last.batch_id - at.batch_id > most:
                yield Late(key, one, most, last.batch_id - at.batch_id)

    def has_given_up(self, late: Late) -> bool:
        """Say whether the stream goes on without a follower, as a line has said."""
        return late.follower.name in self._next_look

    def _limited(self) -> dict[str, tuple[Follower, str, int]]:
        config, own = self.places.config, limits_of(self.places.config)
        every = config.pipeline.max_lag
        others = {} if every is None else {one.name: ("pipeline.max_lag", every) for one in self.places.followers()}
        limits = {**others, **own}
        return {one.name: (one, *limits[one.name]) for one in self.places.followers() if one.name in limits}

    def _may_be_late(self, name: str, most: int, batch_id: int) -> bool:
        return batch_id - self._known.get(name, -1) > most and time.monotonic() >= self._next_look.get(name, 0.0)

    def _read(self, one: Follower, at: Reached) -> None:
        self._known[one.name] = at.batch_id
        self._unreadable.pop(one.name, None)
        if self._next_look.pop(one.name, None) is not None:
            _log.warning("%s: %s can be read again", self.places.config.pipeline.name, one.name)

    def _unread(self, late: Late) -> Iterator[Late]:
        """Yield a follower that can't be read, unless the stream has waited for it long enough; then say that it goes on without it."""
        name, now = late.follower.name, time.monotonic()
        if now - self._unreadable.setdefault(name, now) < UNREADABLE_S:
            yield late
            return
        if name not in self._next_look:
            _log.warning(
                "%s: %s: %s can't be read (%s) for %d minutes; the stream goes on without it, and loses nothing: it catches up when it runs again",
                *(self.places.config.pipeline.name, late.key, late.who, late.unreadable, UNREADABLE_S // 60),
            )
        self._next_look[name] = now + _FAR_LOOK_S


def places_with_spark(tables: Tables, config: Config) -> Places:
    """Return the followers of a pipeline as Spark reads their places."""
    return Places(config, tables, tables, partial(Tables, tables.spark))


def held_back(tables: Tables, config: Config) -> Gate:
    """Return a function that waits, before a batch, until no follower is more than its `max_lag` batches behind.

    It reports that it waits, for whom, again every ten minutes, and once that it goes on. For one that can't be read it waits
    UNREADABLE_S at most.
    """
    limits, name = Limits(places_with_spark(tables, config)), config.pipeline.name

    def wait(ending: Event) -> None:
        if not limits.exist:
            return
        told: tuple[Late, float] | None = None
        while (late := next(limits.late(), None)) is not None and not ending.wait(_LOOK_S if told else 0):
            now = time.monotonic()
            if told is None or told[0].who != late.who or now > told[1] + _AGAIN_S:
                _log.warning(
                    "%s: %s: %s; the stream waits for it, and loses nothing: %s",
                    *(name, late.key, late.told, late.remedy),
                )
                told = late, now
        if told is not None and not ending.is_set() and not limits.has_given_up(told[0]):
            _log.warning("%s: %s: %s has caught up; the stream goes on", name, told[0].key, told[0].who)

    return wait


def tell_late(tables: Tables, config: Config) -> None:
    """Tell, in a line for each, the followers that a stream would wait for: a run that ends does not wait, because its caller can."""
    limits = Limits(places_with_spark(tables, config))
    for late in limits.late() if limits.exist else ():
        _log.warning(
            "%s: %s: %s; a run with --once does not wait for it: %s",
            *(config.pipeline.name, late.key, late.told, late.remedy),
        )
