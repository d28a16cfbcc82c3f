"""The keys of [ttl] that patterns of tables share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import Field

from sessionlake.columnar.column_types import TIME
from sessionlake.columnar.expressions import EVENT_TIME, KEY
from sessionlake.config.sections import EventSection
from sessionlake.errors import ConfigError
from sessionlake.operators.shared.cleanups.build import parsed_rule, rule_of, schedule_of
from sessionlake.operators.shared.cleanups.rule import Rule, Since
from sessionlake.operators.shared.cleanups.schedule import Schedule
from sessionlake.operators.shared.cleanups.section import CleanedSection, ExpirySection

if TYPE_CHECKING:
    from sessionlake.operators.keyed.expiry.ttl import Ttl

Types = Mapping[str, pa.DataType]


class TtlSection(ExpirySection):
    """When rows of a keyed table expire; each pattern has a class, in its module."""

    @property
    def hides_us(self) -> int | None:
        """How long after they were written rows are hidden without a delete; None if deletes are logged."""
        return None

    @property
    def tombstones_per_second(self) -> int | None:
        """The most tombstones a second that are sent to the topic of the events; None if none are sent."""
        return None

    def check_event(self, event: EventSection) -> None:
        """Raise ConfigError for keys that the pattern can't read."""
        del event

    def build(self, types: Types, shards: int, *, allowed: bool = False) -> "Ttl":
        """Return the workers' form of it, over rows whose columns have the given types; ConfigError if SQL does not fit them.

        If it is `allowed`, cleanups may remove any share of the rows.
        """
        raise NotImplementedError


class TopicTombstonesSection(TtlSection):
    """Rows go by deletes, which may be sent to the topic of the events as tombstones."""

    topic_tombstones: bool = False
    """Whether tombstones of the rows that have gone are sent to the topic of the events."""
    max_tombstones_per_second: int = Field(default=10_000, ge=1)

    @property
    def tombstones_per_second(self) -> int | None:
        """The most tombstones a second that are sent to the topic of the events; None if none are sent."""
        return self.max_tombstones_per_second if self.topic_tombstones else None

    def check(self) -> None:
        """Refuse a pace of tombstones that are not sent."""
        if not self.topic_tombstones and "max_tombstones_per_second" in self.model_fields_set:
            raise ConfigError("ttl.max_tombstones_per_second: goes with topic_tombstones = true; remove it")
        super().check()


class ScheduledSection(TopicTombstonesSection, CleanedSection):
    """Cleanups remove the rows that a rule says have expired."""

    def check(self) -> None:
        """Refuse SQL that is none."""
        super().check()
        _ = parsed_rule(self)

    def schedule(self, *, allowed: bool) -> Schedule:
        """Return when its cleanups are due."""
        # The brake knows a rule by all of its settings: those of a pattern without ids have the default format.
        return schedule_of(self, allowed=allowed, more={"key_format": "uuid7"})

    def rule(self, types: Types, since: Since) -> Rule:
        """Return the rule; ConfigError if SQL does not fit the columns."""
        return rule_of(self, {KEY: pa.string(), EVENT_TIME: TIME, **types}, since)


class SinceSection(ScheduledSection):
    """Time to live counts from one of several times of a row."""

    since: Since | None = None
    """The time that `ttl` counts from: the event's (the default), the clock of the batch that wrote the row last, or of the one that gave its key a row."""

    @property
    def counts_from(self) -> Since:
        """The time that `ttl` counts from."""
        return self.since or "event"

    def check(self) -> None:
        """Refuse a time that the clock of expiries is not compared with."""
        super().check()
        if self.counts_from != "event" and (self.ttl is None or self.clock == "stream"):
            remedy = "goes with ttl.ttl" if self.ttl is None else "is by the batches' clock, and ttl.clock is 'stream'"
            raise ConfigError(f"ttl.since: {self.since!r} {remedy}; write 'event'")

    if TYPE_CHECKING:
        ttl: str | None
