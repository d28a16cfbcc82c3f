"""The section [ttl] of a config."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pydantic import Field

from sessionlake.columnar.expressions import EVENT_TIME, KEY, TIME
from sessionlake.config.durations import parse_duration
from sessionlake.config.sections import Duration
from sessionlake.config.ttl import RULES, ExpirySection
from sessionlake.errors import ConfigError
from sessionlake.operators.cleanups.made import parsed_rule, rule_of, schedule_of
from sessionlake.operators.cleanups.rule import Rule, Since
from sessionlake.operators.keyed.expiry.index import Index
from sessionlake.operators.keyed.expiry.lru import Lru
from sessionlake.operators.keyed.expiry.ordered_ids import KeyFormat
from sessionlake.operators.keyed.expiry.pattern import Pattern
from sessionlake.operators.keyed.expiry.scan import Scan
from sessionlake.operators.keyed.expiry.segments import Segments
from sessionlake.operators.keyed.expiry.time_boxed import TimeBoxed
from sessionlake.operators.keyed.expiry.time_ordered_keys import TimeOrderedKeys
from sessionlake.operators.keyed.ttl import Ttl

_CLEANED = ("since", "clock", "every")
_TOLD = ("topic_tombstones", "max_tombstones_per_second")
_USED: Mapping[str, tuple[str, ...]] = {
    "scan": (*RULES, *_CLEANED, "max_per_cleanup", "max_share", *_TOLD),
    "index": ("ttl", "expires_at", *_CLEANED, "max_per_cleanup", "max_share", *_TOLD),
    "time_boxed": (*RULES, *_CLEANED, "max_duration", "max_share", *_TOLD),
    "time_ordered_keys": ("ttl", "where", "clock", "every", "max_per_cleanup", "max_share", "key_format", *_TOLD),
    "lru": ("max_entries", "changelog_retention", "max_share", *_TOLD),
    "segments": ("ttl", "since", "every", "max_share"),
}
"""The settings that each pattern has."""


class TtlSection(ExpirySection):
    """When rows of a keyed table expire, and how they are found."""

    since: Since | None = None
    """Which time `ttl` goes by: its event's, as is the default but with segments, or the clock of the batch that wrote it last, or of the one that gave its key a row."""
    max_entries: int | None = Field(default=None, ge=1)
    """How many rows the table keeps, about: a shard its part."""
    changelog_retention: Duration | None = None
    """How long after it was written a row is kept at most; then it is absent without a delete. For ever where it is left out."""
    key_format: KeyFormat = "uuid7"
    """What the keys are, which begin with the time at which they were made."""
    topic_tombstones: bool = False
    """Whether the topic that the events come from is told of the rows that have gone."""
    max_tombstones_per_second: int = Field(default=10_000, ge=1)

    def check(self) -> None:
        """Refuse SQL that is none, rules that are not exactly one, and settings that the pattern does not have."""
        used = _USED[self.pattern]
        for name in sorted(self.model_fields_set - {"pattern", *used}):
            having = ", ".join(repr(pattern) for pattern, names in _USED.items() if name in names)
            raise ConfigError(
                f"ttl.{name}: is not used by pattern {self.pattern!r}; remove it, or write one of {having}"
            )
        if not self.topic_tombstones and "max_tombstones_per_second" in self.model_fields_set:
            raise ConfigError("ttl.max_tombstones_per_second: goes with topic_tombstones = true; remove it")
        if self.pattern == "lru":
            if self.max_entries is None:
                raise ConfigError("ttl.max_entries: is missing; write how many rows the table keeps, as in 10_000")
            self._check_hidden()
            return
        if self.pattern == "time_ordered_keys":
            if self.ttl is None:
                raise ConfigError(
                    "ttl.ttl: is missing; write how long after its key was made a row expires, as in '3 days'"
                )
        else:
            self.check_one_rule([name for name in RULES if name in used])
        self._check_since()
        self.check_longer_than_zero("every", "max_duration", *(["ttl"] if self.pattern == "segments" else []))
        _ = parsed_rule(self)

    def _check_hidden(self) -> None:
        if self.hides_us is None and "max_share" in self.model_fields_set:
            raise ConfigError(
                "ttl.max_share: goes with changelog_retention in pattern 'lru', whose other rows go for their number; remove it"
            )
        if self.hides_us == 0:
            raise ConfigError(f"ttl.changelog_retention: {self.changelog_retention!r} must be longer than zero")
        if self.hides_us is not None and self.topic_tombstones:
            raise ConfigError(
                "ttl.changelog_retention: takes rows away of which no delete tells, and topic_tombstones goes by deletes; remove one"
            )

    def _check_since(self) -> None:
        if self.pattern == "segments" and self.since not in (None, "write"):
            raise ConfigError(
                f"ttl.since: {self.since!r} is not what segments are by; write 'write', or pattern = 'index'"
            )
        if self.since not in (None, "event") and (self.ttl is None or self.clock == "stream"):
            remedy = "goes with ttl.ttl" if self.ttl is None else "is by the batches' clock, and ttl.clock is 'stream'"
            raise ConfigError(f"ttl.since: {self.since!r} {remedy}; write 'event'")

    @property
    def hides_us(self) -> int | None:
        """How long after they were written rows are absent without a delete; None where deletes are logged."""
        if self.pattern == "segments":
            return parse_duration(self.ttl or "")
        return None if self.changelog_retention is None else parse_duration(self.changelog_retention)

    def made(self, types: Mapping[str, pa.DataType], shards: int, *, allowed: bool = False) -> Ttl:
        """Return what workers know of it, over rows with columns of these types; ConfigError where SQL does not fit them.

        Nothing holds back what it removes where that is `allowed`.
        """
        schedule = schedule_of(self, allowed=allowed)
        if self.max_entries is not None:
            lru = Lru(-(-self.max_entries // shards), self.hides_us)
            since: Since = "event" if self.hides_us is None else "write"
            # Rows that go for their number go by no clock, so that no jump of it holds them back.
            free = allowed or self.hides_us is None
            return Ttl(lru, replace(schedule, every_us=None, brake=None, allowed=free), since, self.max_share)
        if self.hides_us is not None:
            return Ttl(Segments(self.hides_us), replace(schedule, brake=None), "write", self.max_share)
        if self.pattern == "time_ordered_keys":
            return Ttl(self._by_key(types), schedule)
        made: Mapping[str, Callable[[Rule], Pattern]] = {
            "scan": lambda rule: Scan(rule, self.max_per_cleanup),
            "index": lambda rule: Index(rule, self.max_per_cleanup),
            "time_boxed": lambda rule: TimeBoxed(rule, parse_duration(self.max_duration)),
        }
        return Ttl(made[self.pattern](self._rule(types)), schedule, self.since or "event")

    def _by_key(self, types: Mapping[str, pa.DataType]) -> TimeOrderedKeys:
        narrowed = None if self.where is None else self._rule(types)
        return TimeOrderedKeys(parse_duration(self.ttl or ""), self.key_format, narrowed, self.max_per_cleanup)

    def _rule(self, types: Mapping[str, pa.DataType]) -> Rule:
        return rule_of(self, {KEY: pa.string(), EVENT_TIME: TIME, **types}, self.since or "event")
