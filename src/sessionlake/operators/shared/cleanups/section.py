"""The keys of [ttl] that operators with this section share; each pattern is a class with some of them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from sessionlake.config.durations import parse_duration
from sessionlake.config.fields import Duration, Section
from sessionlake.errors import ConfigError

RULES = ("ttl", "expires_at", "where")


class ExpirySection(Section):
    """When rows expire, and how they are found."""

    pattern: str
    """How they are found."""
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """A batch is refused if its cleanup would remove more than this share of the rows."""

    def check(self) -> None:
        """Raise ConfigError if values that are right one by one don't go together."""

    def check_longer_than_zero(self, *names: str) -> None:
        """Refuse durations of no length."""
        for name in names:
            if parse_duration(getattr(self, name)) == 0:
                raise ConfigError(f"ttl.{name}: {getattr(self, name)!r} must be longer than zero")

    def settings(self) -> dict[str, Any]:
        """Return the section as JSON values."""
        return self.model_dump(exclude_unset=True)


class CleanedSection(ExpirySection):
    """A cleanup looks for rows that have expired."""

    clock: Literal["wall", "stream"] = "wall"
    """The clock that expiries are compared with: the batch's, or the watermark before the batch."""
    every: Duration = "1 minute"

    def check(self) -> None:
        """Refuse cleanups without a pause."""
        self.check_longer_than_zero("every")


class RuleSection(CleanedSection):
    """One of several rules says which rows have expired."""

    ttl: Duration | None = None
    """A row expires this long after a time of it."""
    expires_at: str | None = None
    """SQL over the row: the time at which it expires, null for never."""

    def check(self) -> None:
        """Refuse rules that are not exactly one."""
        rules = [name for name in RULES if name in type(self).model_fields]
        given = [name for name in rules if getattr(self, name) is not None]
        if len(given) != 1:
            told = "none is there" if not given else f"{' and '.join(given)} are there"
            raise ConfigError(f"ttl: {told}; write exactly one of {', '.join(rules)}")
        super().check()


class ConditionSection(RuleSection):
    """The rule may be a condition, too."""

    where: str | None = None
    """SQL over the row, true for rows that have expired; now() is the clock."""


class BoundedSection(CleanedSection):
    """A cleanup is bounded by a number of rows."""

    max_per_cleanup: int = Field(default=1_000_000, ge=1)
    """How many rows of a shard a cleanup removes at most; the next batch goes on."""


class BoxedSection(CleanedSection):
    """A cleanup is bounded in time."""

    max_duration: Duration = "100 ms"
    """How long a cleanup of a shard may take, about."""

    def check(self) -> None:
        """Refuse a cleanup without time."""
        super().check()
        self.check_longer_than_zero("max_duration")
