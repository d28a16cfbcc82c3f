"""Session windows: gap, grace and retention, and the bounds that a watermark gives them."""

from dataclasses import dataclass, replace

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.errors import ConfigError

NO_WATERMARK = -(1 << 60)
"""Watermark before the first accepted event: far below every time of year 1 to 9999, safe to subtract durations from."""


@dataclass(frozen=True)
class Bounds:
    """The times that decide about a micro-batch, in microseconds; all follow from the previous batch's watermark."""

    close_us: int
    """A merged session that ends strictly before it is late (unless a correction is part of it)."""
    horizon_us: int
    """A stored session that ends strictly before it is cold: absent, but for replacements."""
    expired_us: int
    """An event strictly before it is beyond retention."""


@dataclass(frozen=True)
class SessionWindows:
    """Define session windows; all durations in microseconds.

    Two intervals of a key belong together when their distance is at most the gap (exactly the gap merges, as in
    Kafka Streams and unlike Spark's session_window). See KIP-94 for gap and retention, KIP-328 for grace.
    """

    gap_us: int
    grace_us: int = 0
    retention_us: int | None = None

    def __post_init__(self) -> None:
        if self.gap_us <= 0:
            raise ConfigError("session.gap: 0 must be longer; write '1 microsecond' or more")
        if self.retention_us is not None and self.retention_us < self.gap_us + self.grace_us:
            needed = format_duration(self.gap_us + self.grace_us)
            raise ConfigError(
                f"session.retention: {format_duration(self.retention_us)!r} is shorter than gap + grace = {needed!r}; "
                f"write at least '{self.gap_us + self.grace_us} us'"
            )

    @classmethod
    def with_gap(cls, gap: str) -> "SessionWindows":
        """Start a definition with an inactivity gap such as "30 minutes"; no grace, retention gap + grace."""
        return cls(parse_duration(gap, "session.gap"))

    def grace(self, grace: str) -> "SessionWindows":
        """Accept changes to a session until the watermark passes session_end + gap + grace."""
        return replace(self, grace_us=parse_duration(grace, "session.grace"))

    def until(self, retention: str) -> "SessionWindows":
        """Keep sessions in the store for this long; at least gap + grace."""
        return replace(self, retention_us=parse_duration(retention, "session.retention"))

    @property
    def kept_us(self) -> int:
        """Retention, which is gap + grace where none was given."""
        return self.gap_us + self.grace_us if self.retention_us is None else self.retention_us

    def bounds(self, watermark_us: int) -> Bounds:
        """Return the bounds that hold during a micro-batch whose predecessor left this watermark."""
        return Bounds(
            close_us=watermark_us - self.grace_us - self.gap_us,
            horizon_us=watermark_us - self.kept_us - self.gap_us,
            expired_us=watermark_us - self.kept_us,
        )
