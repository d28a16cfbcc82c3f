"""Session windows: gap, grace and retention, and the bounds that a watermark gives them (docs/rules.md, "Words")."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    # Workers unpickle windows, and have no config: pydantic stays out of them.
    from sessionlake.config.load import Config


@dataclass(frozen=True)
class Bounds:
    """The times that decide about a micro-batch, in microseconds; all follow from the previous batch's watermark.

    They are the same for all rows and shards of a batch, so that no order within it can matter.
    """

    close_us: int
    """A merged session that ends strictly before it is late, unless a correction is part of it (docs/rules.md, rule 5)."""
    horizon_us: int
    """A stored session that ends strictly before it is cold: absent, but for replacements (docs/rules.md, rule 7)."""
    expired_us: int
    """An event strictly before it is beyond retention (docs/rules.md, rule 3)."""


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

    @classmethod
    def of(cls, config: "Config") -> "SessionWindows":
        """Return a pipeline's windows."""
        return cls(config.gap_us, config.grace_us, config.retention_us)

    @property
    def to_close_us(self) -> int:
        """How far after its end a session closes: it is final once the watermark lies more than this beyond the end."""
        return self.gap_us + self.grace_us

    @property
    def kept_us(self) -> int:
        """Retention, which is gap + grace where none was given."""
        return self.to_close_us if self.retention_us is None else self.retention_us

    def closed_us(self, watermark_us: int | None) -> int | None:
        """Return the time before which a session has ended, strictly, if it is final; None before the first watermark."""
        return None if watermark_us is None else watermark_us - self.to_close_us

    def bounds(self, watermark_us: int) -> Bounds:
        """Return the bounds that hold during a micro-batch whose predecessor left this watermark."""
        # The horizon is a gap below retention's end: the oldest event that is accepted still finds a neighbour there.
        return Bounds(
            close_us=watermark_us - self.to_close_us,
            horizon_us=watermark_us - self.kept_us - self.gap_us,
            expired_us=watermark_us - self.kept_us,
        )
