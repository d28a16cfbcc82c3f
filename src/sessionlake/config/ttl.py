"""The section [ttl]: what every operator with one shares, and that of sessions."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.config.sections import Duration, Section
from sessionlake.config.sessions import SessionSection
from sessionlake.errors import ConfigError

RULES = ("ttl", "expires_at", "where")
_OF_SESSIONS = ("scan", "time_boxed")


class ExpirySection(Section):
    """When rows expire, and when a cleanup looks for them."""

    pattern: Literal["scan", "index", "time_boxed", "time_ordered_keys", "lru", "segments"]
    """How they are found."""
    ttl: Duration | None = None
    """A row expires so long after a time of it."""
    expires_at: str | None = None
    """SQL over the row: the time at which it expires, null for never."""
    where: str | None = None
    """SQL over the row, true of those that have expired; now() is the clock."""
    clock: Literal["wall", "stream"] = "wall"
    """What expiries are held against: the batch's clock, or the watermark before the batch."""
    every: Duration = "1 minute"
    max_duration: Duration = "100 ms"
    """How long a cleanup of a shard may take, about."""
    max_per_cleanup: int = Field(default=1_000_000, ge=1)
    """How many rows of a shard a cleanup takes away at most; the next batch goes on."""

    max_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """A batch is refused with whose cleanup more than this share of the rows would have gone."""

    def check_one_rule(self, rules: Sequence[str] = RULES) -> None:
        """Refuse rules that are not exactly one of some."""
        given = [name for name in rules if getattr(self, name) is not None]
        if len(given) != 1:
            told = "none is there" if not given else f"{' and '.join(given)} are there"
            raise ConfigError(f"ttl: {told}; write exactly one of {', '.join(rules)}")

    def check_longer_than_zero(self, *names: str) -> None:
        """Refuse durations of no length."""
        for name in names:
            if parse_duration(getattr(self, name)) == 0:
                raise ConfigError(f"ttl.{name}: {getattr(self, name)!r} must be longer than zero")

    def settings(self) -> dict[str, Any]:
        """Return the section as JSON values."""
        return self.model_dump(exclude_unset=True)


class SessionTtlSection(ExpirySection):
    """When closed sessions expire."""

    @property
    def max_duration_us(self) -> int | None:
        """How long a cleanup of a shard may take, about; None where it looks at all sessions."""
        return parse_duration(self.max_duration) if self.pattern == "time_boxed" else None

    @property
    def most(self) -> int | None:
        """How many sessions of a shard a cleanup takes away at most; None where it is bounded in time."""
        return None if self.pattern == "time_boxed" else self.max_per_cleanup

    def check(self, session: SessionSection) -> None:
        """Refuse patterns of tables, rules that are not exactly one, and ages that no session in the stores comes to."""
        if self.pattern not in _OF_SESSIONS:
            raise ConfigError(
                f"ttl.pattern: {self.pattern!r} is for keyed tables, and sessions expire by whole segments: session.retention; "
                "write 'scan' or 'time_boxed' to remove some before that"
            )
        for name, other, having in (("max_duration", "scan", "time_boxed"), ("max_per_cleanup", "time_boxed", "scan")):
            if self.pattern == other and name in self.model_fields_set:
                raise ConfigError(f"ttl.{name}: is not used by pattern {other!r}; remove it, or write {having!r}")
        self.check_one_rule()
        self.check_longer_than_zero("every", "max_duration")
        if self.ttl is not None and parse_duration(self.ttl) > session.retention_us:
            raise ConfigError(
                f"ttl.ttl: {self.ttl!r} is longer than session.retention, {format_duration(session.retention_us)!r}, after which "
                "sessions leave the stores; raise that, or use the job `expire` (expire.ttl)"
            )
