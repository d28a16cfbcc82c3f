"""The section [window] of a config."""

from typing import Any, ClassVar, Literal

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.config.sections import Duration, OperatorSection
from sessionlake.errors import ConfigError


class WindowSection(OperatorSection):
    """Windows on the axis of event time."""

    RESERVED: ClassVar[frozenset[str]] = frozenset(
        ("window_key", "window_start", "window_end", "window_id", "window_date", "trigger", "emitted_at")
    )

    kind: Literal["tumbling"]
    by: Literal["time"] = "time"
    size: Duration
    offset: Duration = "0 seconds"
    """Where the grid begins: a window starts at the epoch + offset + a multiple of the size."""
    grace: Duration | None = None
    """How long after its end a window takes events; as long as the retention where none is given."""
    retention_time: Duration
    """How long before the watermark events are taken in."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"

    @property
    def size_us(self) -> int:
        """Length of a window."""
        return parse_duration(self.size)

    @property
    def offset_us(self) -> int:
        """Offset of the grid."""
        return parse_duration(self.offset)

    @property
    def grace_us(self) -> int:
        """Grace after a window's end."""
        return self.retention_us if self.grace is None else parse_duration(self.grace)

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention_time)

    @property
    def skew_us(self) -> int:
        """The size: an early event then closes at most the window before its own."""
        return self.size_us

    def check(self) -> None:
        """Refuse an empty window, and a retention shorter than size or grace."""
        if self.size_us == 0:
            raise ConfigError(f"window.size: {self.size!r} must be longer than zero; write for example '1 hour'")
        needed = max(self.size_us, self.grace_us)
        if self.retention_us < needed:
            raise ConfigError(
                f"window.retention_time: {self.retention_time!r} is shorter than size and grace ask for; "
                f"write '{format_duration(needed)}' or longer"
            )

    def bound_settings(self) -> dict[str, Any]:
        """Return what decides how windows lie."""
        return {"window.kind": self.kind, "window.size": self.size_us, "window.offset": self.offset_us}
