"""The section [ttl] of a config."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import Field

from sessionlake.columnar.expressions import EVENT_TIME, KEY, TIME
from sessionlake.config.durations import parse_duration
from sessionlake.config.sections import Duration, Section
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.expiry.index import Index
from sessionlake.operators.keyed.expiry.lru import Lru
from sessionlake.operators.keyed.expiry.ordered_ids import KeyFormat
from sessionlake.operators.keyed.expiry.pattern import Pattern
from sessionlake.operators.keyed.expiry.rule import Rule, Since
from sessionlake.operators.keyed.expiry.scan import Scan
from sessionlake.operators.keyed.expiry.segments import Segments
from sessionlake.operators.keyed.expiry.time_boxed import TimeBoxed
from sessionlake.operators.keyed.expiry.time_ordered_keys import TimeOrderedKeys
from sessionlake.operators.keyed.ttl import Clock, Ttl

if TYPE_CHECKING:
    from sessionlake.columnar.spark_sql import Parsed

_RULES = ("ttl", "expires_at", "where")
_CLEANED = ("since", "clock", "every")
_TOLD = ("topic_tombstones", "max_tombstones_per_second")
_USED: Mapping[str, tuple[str, ...]] = {
    "scan": (*_RULES, *_CLEANED, *_TOLD),
    "index": ("ttl", "expires_at", *_CLEANED, *_TOLD),
    "time_boxed": (*_RULES, *_CLEANED, "max_duration", *_TOLD),
    "time_ordered_keys": ("ttl", "where", "clock", "every", "key_format", *_TOLD),
    "lru": ("max_entries", "changelog_retention", *_TOLD),
    "segments": ("ttl", "since", "every"),
}
"""The settings that each pattern has."""


class TtlSection(Section):
    """When rows of a keyed table expire, and how they are found."""

    pattern: Literal["scan", "index", "time_boxed", "time_ordered_keys", "lru", "segments"]
    ttl: Duration | None = None
    """A row expires so long after a time of it."""
    since: Since | None = None
    """Which time: its event's, as is the default but with segments, or the clock of the batch that wrote it last, or of the one that gave its key a row."""
    expires_at: str | None = None
    """SQL over the row: the time at which it expires, null for never."""
    where: str | None = None
    """SQL over the row, true of those that have expired; now() is the clock."""
    clock: Clock = "wall"
    """What expiries are held against: the batch's clock, or the watermark before the batch."""
    every: Duration = "1 minute"
    max_duration: Duration = "100 ms"
    """How long a cleanup of a shard may take, about."""
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
        rules = [name for name in _RULES if name in used]
        given = [name for name in rules if getattr(self, name) is not None]
        if self.pattern == "time_ordered_keys":
            if self.ttl is None:
                raise ConfigError(
                    "ttl.ttl: is missing; write how long after its key was made a row expires, as in '3 days'"
                )
        elif len(given) != 1:
            told = "none is there" if not given else f"{' and '.join(given)} are there"
            raise ConfigError(f"ttl: {told}; write exactly one of {', '.join(rules)}")
        self._check_since()
        for name in ("every", "max_duration", *(["ttl"] if self.pattern == "segments" else [])):
            if parse_duration(getattr(self, name)) == 0:
                raise ConfigError(f"ttl.{name}: {getattr(self, name)!r} must be longer than zero")
        _ = self.parsed

    def _check_hidden(self) -> None:
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
    def parsed(self) -> "Parsed | None":
        """The rule that is SQL; ConfigError for what is none."""
        name = "where" if self.expires_at is None else "expires_at"
        text = self.where if self.expires_at is None else self.expires_at
        if text is None:
            return None
        from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

        return parse(f"ttl.{name}", text)

    @property
    def hides_us(self) -> int | None:
        """How long after they were written rows are absent without a delete; None where deletes are logged."""
        if self.pattern == "segments":
            return parse_duration(self.ttl or "")
        return None if self.changelog_retention is None else parse_duration(self.changelog_retention)

    def made(self, types: Mapping[str, pa.DataType], shards: int) -> Ttl:
        """Return what workers know of it, over rows with columns of these types; ConfigError where SQL does not fit them."""
        if self.max_entries is not None:
            lru = Lru(-(-self.max_entries // shards), self.hides_us)
            return Ttl(lru, since="event" if self.hides_us is None else "write")
        if self.hides_us is not None:
            return Ttl(Segments(self.hides_us), "wall", parse_duration(self.every), "write")
        if self.pattern == "time_ordered_keys":
            return Ttl(self._by_key(types), self.clock, parse_duration(self.every))
        made: Mapping[str, Callable[[Rule], Pattern]] = {
            "scan": Scan,
            "index": Index,
            "time_boxed": lambda rule: TimeBoxed(rule, parse_duration(self.max_duration)),
        }
        return Ttl(made[self.pattern](self._rule(types)), self.clock, parse_duration(self.every), self.since or "event")

    def settings(self) -> dict[str, Any]:
        """Return the section as JSON values."""
        return self.model_dump(exclude_unset=True)

    def _by_key(self, types: Mapping[str, pa.DataType]) -> TimeOrderedKeys:
        narrowed = None if self.where is None else self._rule(types)
        return TimeOrderedKeys(parse_duration(self.ttl or ""), self.key_format, narrowed)

    def _rule(self, types: Mapping[str, pa.DataType]) -> Rule:
        parsed, known = self.parsed, {KEY: pa.string(), EVENT_TIME: TIME, **types}
        if parsed is None:
            return Rule(ttl_us=parse_duration(self.ttl or ""), since=self.since or "event")
        if self.expires_at is None:
            return Rule(where=parsed.typed(known, "boolean"))
        expires_at = parsed.typed(known, "timestamp")
        if expires_at.uses_clock:
            raise ConfigError(
                f"ttl.expires_at: {parsed.text!r} reads the clock, and a row must expire at one time; write a condition, `where`"
            )
        return Rule(expires_at=expires_at)
