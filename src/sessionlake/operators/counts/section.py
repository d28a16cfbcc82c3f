"""The sections [window] and [emit] of windows and sessions by count."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar, Literal

from sessionlake.config.durations import parse_duration
from sessionlake.config.sections import Duration, OperatorSection, Section
from sessionlake.errors import ConfigError
from sessionlake.operators.counts.spec import (
    PARTITION_SIZE,
    PER_KEY,
    PER_PARTITION,
    Counts,
    Grid,
    Sessions,
    Sliding,
    policies,
)
from sessionlake.operators.windows.emission import BATCH, OFF, Policies
from sessionlake.operators.windows.policy import policy

MAX_SLICES = 4096
"""Slices of a window, and windows of a slice."""
_BY_TIME = "is of windows by time, and these are by count; remove it"


class CountEmitSection(Section):
    """When windows are sent: full ones at once."""

    early: policy(OFF, BATCH) = OFF  # type: ignore[valid-type]
    """Changes of windows that are not full: never, with each batch, or once a period of the clock."""
    tick_offset: Duration = "0 seconds"
    """Periods of the clock begin at the epoch + it."""
    full: str | None = None
    late: str | None = None

    @property
    def policies(self) -> Policies:
        """The policies, periods in microseconds."""
        early = self.early if self.early in (OFF, BATCH) else parse_duration(self.early)
        return policies(early, parse_duration(self.tick_offset))


class CountSection(OperatorSection):
    """Windows on the axis of message numbers."""

    KIND: ClassVar[str | None] = "sessionlake.operators.counts.kind:CountedWindows"
    BESIDE: ClassVar[tuple[str, ...]] = ("emit",)
    KEYED: ClassVar[bool] = False
    PATIENCE: ClassVar[str] = "retention_time"
    RESERVED: ClassVar[frozenset[str]] = frozenset(
        (
            *("window_key", "window_start", "window_end", "window_id", "window_date", "window_part"),
            *("trigger", "emitted_at", "final"),
        )
    )

    kind: Literal["tumbling", "hopping", "sliding", "session"]
    by: Literal["count"]
    size: int | None = None
    """Messages of a window."""
    advance: int | None = None
    """Of hopping windows: messages from one window's start to the next one's."""
    offset: int | None = None
    """Messages before the first window, which are in none."""
    per: Literal["key", "partition"] | None = None
    """What is numbered: the messages of a key, the default where events have one, or of a source partition."""
    max_others: int | None = None
    """Of sessions: messages of others that may lie between two of a session."""
    retention_time: Duration
    """How long before the watermark events are taken in, and a key without messages is known."""
    retention_count: int
    """How many messages of a key, or of a partition, a window may ask for."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    emit: CountEmitSection = CountEmitSection()
    grace: str | None = None
    exits: bool | None = None

    @property
    def windows(self) -> Counts:
        """The windows."""
        if self.kind == "session":
            return Sessions(self.max_others or 0)
        size = self.size or 0
        if self.kind == "sliding":
            return Sliding(size)
        return Grid(size, size if self.advance is None else self.advance, self.offset or 0)

    @property
    def numbered(self) -> str:
        """What is numbered."""
        return PER_PARTITION if self.kind == "session" else (self.per or PER_KEY)

    def without_key(self) -> OperatorSection:
        """Return the section over partitions, where it does not say what is numbered."""
        if self.per is not None or self.kind == "session":
            return self
        return self.model_copy(update={"per": PER_PARTITION})

    @property
    def by_count(self) -> bool:
        """Rows start and end with numbers."""
        return True

    @property
    def grace_us(self) -> int:
        """The retention: until it is over, no event is refused for its time."""
        return self.retention_us

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention_time)

    @property
    def skew_us(self) -> int:
        """A minute: no window hangs on times."""
        return 0

    @property
    def ends_inclusive(self) -> bool:
        """A window has the message that it ends with."""
        return True

    @property
    def sums_events(self) -> bool:
        """Whether each accepted event is in exactly one row, at any time."""
        whole = self.kind == "session" or (self.kind == "tumbling" and not self.offset)
        return whole and self.emit.early == BATCH

    def final_sql(self, end: str, state: Mapping[str, Any]) -> str:
        """A window is final when it is full: it says so, or the partition has come as far."""
        conditions = ["trigger = 'full'"]
        if self.numbered == PER_PARTITION:
            further = (self.max_others or 0) + 1 if self.kind == "session" else 0
            for inputs in state.get("positions", {}).values():
                for partition, accepted in sorted(inputs.items(), key=lambda item: int(item[0])):
                    base = int(partition) * PARTITION_SIZE
                    conditions.append(f"({end} > {base} and {end} <= {base + accepted - further})")
        return "(" + " or ".join(conditions) + ")"

    def in_words(self) -> str:
        """Return which windows there are."""
        of = "a key" if self.numbered == PER_KEY else "a partition of the source"
        if self.kind == "session":
            return f"sessions of messages of {of} with at most {self.max_others} of others between two of them"
        every = f", one every {self.advance}" if self.kind == "hopping" else ""
        return f"{self.kind} windows of {self.size} messages{every}, numbered by {of}"

    def check(self) -> None:
        """Refuse windows without messages, keys of other kinds, and a retention shorter than a window."""
        for name, value in (("window.grace", self.grace), ("window.exits", self.exits)):
            if value is not None:
                raise ConfigError(f"{name}: {_BY_TIME}")
        for name, text in (("emit.full", self.emit.full), ("emit.late", self.emit.late)):
            if text is not None:
                raise ConfigError(f"{name}: {_BY_TIME}: a full window is sent at once, and nothing is late")
        if self.kind == "session":
            self._check_session()
        else:
            self._check_window()
        needed = self.windows.gap if isinstance(self.windows, Sessions) else self.windows.size
        if self.retention_count < needed:
            raise ConfigError(
                f"window.retention_count: {self.retention_count} is less than the {needed} messages that windows ask for; "
                f"write {needed} or more"
            )
        if self.retention_us == 0:
            raise ConfigError(
                f"window.retention_time: {self.retention_time!r} must be longer than zero; write for example '7 days'"
            )

    def _check_session(self) -> None:
        for name in ("size", "advance", "offset", "per"):
            if getattr(self, name) is not None:
                raise ConfigError(f"window.{name}: is of windows, and these are sessions; remove it")
        if self.max_others is None:
            raise ConfigError("window.max_others: is missing; sessions by count need it, as in 100")
        if self.max_others < 0:
            raise ConfigError(f"window.max_others: {self.max_others} is too few messages; write 0 or more")

    def _check_window(self) -> None:
        size, hopping = self.size, self.kind == "hopping"
        if self.max_others is not None:
            raise ConfigError(f"window.max_others: is of sessions, and these windows are {self.kind}; remove it")
        if size is None:
            raise ConfigError("window.size: is missing; write how many messages a window has, as in 100")
        if size < 1:
            raise ConfigError(f"window.size: {size} is too few messages; write 1 or more")
        if hopping and self.advance is None:
            raise ConfigError("window.advance: is missing; hopping windows need one, as in 10")
        if not hopping and self.advance is not None:
            raise ConfigError(f"window.advance: is of hopping windows, and these are {self.kind}; remove it")
        if self.advance is not None and not 0 < self.advance <= size:
            raise ConfigError(
                f"window.advance: {self.advance} must be 1 at least and at most the size, {size}; "
                "between windows that are further apart messages would belong to none"
            )
        if self.offset is not None and (self.kind == "sliding" or self.offset < 0):
            raise ConfigError(f"window.offset: {self.offset} does not go with {self.kind} windows; remove it")
        windows = self.windows
        if isinstance(windows, Grid):
            slices, overlap = size // windows.slice, -(-size // windows.advance)
            if max(slices, overlap) > MAX_SLICES:
                raise ConfigError(
                    f"window.advance: {self.advance} cuts windows of {size} into {slices} slices, {MAX_SLICES} are the most; "
                    "write one that divides the size into fewer"
                )

    def bound_settings(self) -> dict[str, Any]:
        """Return what decides how windows lie."""
        return {
            "window.by": "count",
            "window.kind": self.kind,
            "window.size": self.size,
            "window.advance": self.advance,
            "window.offset": self.offset or 0,
            "window.per": self.numbered,
            "window.max_others": self.max_others,
        }

    def live_settings(self) -> dict[str, Any]:
        """Return the policies."""
        return {"emit": asdict(self.emit.policies)}
