"""The sections [join], [join.left], [join.right] and [emit] of a config."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.fields import RETENTION, Duration, Section
from sessionlake.config.sections import EventSection, Facts, GracedSection
from sessionlake.errors import ConfigError
from sessionlake.operators.joins.sides import RESERVED, JoinSideSection, LeftSection, RightSection
from sessionlake.operators.joins.spec import (
    HOPPING,
    SESSION,
    SLIDING,
    TIME_AXIS,
    UNBOUNDED,
    check_full,
    default_grace,
    least_retention,
    reaches_back,
)
from sessionlake.operators.shared.sides.names import LEFT, RIGHT
from sessionlake.operators.shared.sides.section import SidedSection
from sessionlake.operators.shared.windowing.policies import BATCH, CLOSE, END, OFF, Policies
from sessionlake.operators.shared.windowing.policy import policy

_EVER = 1 << 62


class JoinEmitSection(Section):
    """When pairs are sent."""

    early: policy(OFF, BATCH) = BATCH  # type: ignore[valid-type]
    """Of messages at or after the watermark: "batch" (with the batch that brings the later message), once a period of the clock, for example "1 minute", or "off" (when their window is full)."""
    full: Literal["end", "close"] | None = None
    """Of tumbling and hopping joins: pairs wait until their window ends, or closes; with early = "off"."""
    late: policy(BATCH) = BATCH  # type: ignore[valid-type]
    """Of older messages, or of those of a window that is full."""
    unmatched: Literal["close", "batch"] | None = None
    """Of outer joins: a message without a partner is sent once no partner can come, or with its batch; then its row is deleted if one comes."""
    tick_offset: Duration = "0 seconds"
    """Periods of the clock begin at the epoch + it."""

    @property
    def policies(self) -> Policies:
        """The policies, periods in microseconds."""
        early, late = (text if text in (OFF, BATCH) else parse_duration(text) for text in (self.early, self.late))
        return Policies(early, self.full or END, late, parse_duration(self.tick_offset))


class JoinSection(SidedSection, GracedSection):
    """Pairs of messages of two streams."""

    AT: ClassVar[str] = "join"
    BESIDE: ClassVar[tuple[str, ...]] = ("emit",)
    OLD_NAMES: ClassVar[Mapping[str, str]] = {"retention_time": "retention"}
    INSTEAD: ClassVar[Mapping[str, str]] = {"ttl": "join.retention or join.retention_count"}
    RESERVED: ClassVar[frozenset[str]] = RESERVED
    CHANGES: ClassVar[tuple[str, str]] = ("pairs", "the last possible partner of a message")
    HAD_NO_GRACE: ClassVar[bool] = True

    left: LeftSection
    right: RightSection
    on: list[str]
    """Equal fields, as in "id", or "order_id = id" if left and right call them differently; none for all pairs in range."""
    by: Literal["time", "count"] = "time"
    kind: Literal["sliding", "tumbling", "hopping", "session"] = "sliding"
    type: Literal["inner", "left", "right", "full"] = "inner"
    """The sides whose messages make a row without a partner, too, for example `left`; outer joins are by time."""
    size: str | int | None = None
    """Of the windows of tumbling and hopping joins."""
    advance: str | int | None = None
    """Of hopping joins: from one window's start to the next one's."""
    offset: str | int | None = None
    """The start of the grid of tumbling and hopping windows, for example "6 hours" after the epoch."""
    gap: str | int | None = None
    """Of session joins: neighbors in a session are at most so far apart."""
    retention: Annotated[Duration | None, RETENTION] = None
    """By time: how long messages are kept."""
    retention_count: int | None = Field(default=None, ge=1)
    """By count: how many messages of a side's source partition are kept. By time, about how many of both sides at most."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    idle: Duration = "1 minute"
    """A side that brings nothing for so long, by the clock, does not hold the watermark back."""
    emit: JoinEmitSection = JoinEmitSection()

    @property
    def sides(self) -> dict[str, JoinSideSection]:
        """The two sides, by their names in states and inputs."""
        return {LEFT: self.left, RIGHT: self.right}

    @property
    def default_grace_us(self) -> int:
        """The longest grace that the retention allows; none by count, and as in `default_grace`."""
        if self.by != TIME_AXIS:
            return 0
        return default_grace(self.kind, self._sizes, self._least_us, self.retention_us, self.retention_count)

    @property
    def skew_us(self) -> int:
        """The grace if one is written, otherwise none: a minute, so that an early message does not make others late."""
        return 0 if self.grace is None else self.grace_us

    def grace_told(self) -> str | None:
        """Return in words the grace that is not written; None if one is, or by count, by which nothing is late."""
        if self.by != TIME_AXIS or self.grace is not None:
            return None
        if not self._reaches_back and self.retention_count is None:
            return super().grace_told()
        cost = (
            "shortens the time by which partners may lie apart"
            if self._reaches_back
            else "keeps its messages, however many they are"
        )
        return f"is not written, so it is 0 seconds: a grace {cost}; write grace = '1 hour' for messages that come so late, or '0 seconds'"

    @property
    def retention_us(self) -> int:
        """Retention by time; zero by count."""
        return 0 if self.retention is None else parse_duration(self.retention)

    @property
    def harmless_us(self) -> int:
        """By time: how long after a message its last possible partner may lie at least, and grace; by count nothing is late."""
        if self.by != TIME_AXIS:
            return _EVER
        return (min(self._reaches) if self.kind in (SESSION, SLIDING) else 0) + self.grace_us

    @property
    def least_unique_us(self) -> int:
        """How long after a message its last possible partner may lie at most, and grace. At most the retention."""
        return min(max(self._reaches) + self.grace_us, self.retention_us)

    @property
    def _reaches(self) -> list[int]:
        """How long after a message of each side its last possible partner may lie, microseconds; by windows of one grid their size."""
        if self.kind == SLIDING:
            sizes = map(self.size_of, self.sides)
            return [self.retention_us if size is None else size for size in sizes]
        return [self.on_axis("gap", self.gap) if self.kind == SESSION else self.on_axis("size", self.size)]

    @property
    def idle_us(self) -> int:
        """How long a silent side holds the watermark back."""
        return parse_duration(self.idle)

    @property
    def unmatched(self) -> str:
        """When such a row is sent."""
        return self.emit.unmatched or CLOSE

    @property
    def _reaches_back(self) -> bool:
        """Whether retention and grace decide how far apart partners may lie."""
        return reaches_back(self.kind, self._sizes)

    @property
    def closes_late_us(self) -> int:
        """How long after its message a row of an outer join may be deleted, or sent, without the grace."""
        if not self.outer:
            return 0
        return self.retention_us - self.grace_us if self._reaches_back else self._least_us

    def closing_sql(self, micros: str, end: str) -> str:
        """Return the pair's time, and of outer joins the time after which it can't be taken back."""
        plain = super().closing_sql(micros, end)
        return f"{plain} + {self.closes_late_us}" if self.outer else plain

    @property
    def facts(self) -> Facts:
        """A pair has one time, is there or is not, and can always be removed. A row is in any number of pairs."""
        return Facts(
            shown="all",
            ends_inclusive=True,
            removes_open=True,
            sums_events=False,
            bound_in_time=self.by == TIME_AXIS,
        )

    def on_axis(self, name: str, value: str | int | None) -> int:
        """Return a length on the join's axis, microseconds or messages; zero for none. ConfigError, by its name, for no such length."""
        if value is None:
            return 0
        if self.by == TIME_AXIS:
            return parse_duration(str(value), f"join.{name}")
        if not isinstance(value, int):
            raise ConfigError(f"join.{name}: {value!r} is no number of messages; write a whole number, as in 100")
        return value

    def size_of(self, side: str) -> int | None:
        """Return a side's size on the axis; None if it is unbounded."""
        size = self.sides[side].size
        return None if size is None or size == UNBOUNDED else self.on_axis(f"{side}.size", size)

    def in_words(self) -> str:
        """Return which messages are paired."""
        on = f" with equal {', '.join(self.on)}" if self.on else ""
        near = {
            SLIDING: f"{self.left.name} stays joinable for {self.left.size}, {self.right.name} for {self.right.size}",
            SESSION: f"in one session, neighbors at most {self.gap} apart",
            HOPPING: f"in one window of {self.size}, one every {self.advance}",
        }.get(self.kind, f"in one window of {self.size}")
        alone = {"left": self.left.name, "right": self.right.name, "full": "either side"}.get(self.type)
        when = "once none can come" if self.unmatched == CLOSE else "with its batch"
        near += f"; a message of {alone} without a partner is sent {when}" if alone else ""
        near += (
            f"; pairs are sent when their window {'ends' if self.emit.full == END else 'closes'}"
            if self.emit.full
            else ""
        )
        waits = spoken_duration(self.grace_us)
        late = f"; messages are late {waits} after their last possible partner" if self.by == TIME_AXIS else ""
        return f"pairs of {self.left.name} and {self.right.name}{on}: {near}{late}"

    def check(self) -> None:
        """Refuse keys of other kinds, names that clash, and a retention that would drop partners."""
        self.check_sides()
        self._check_kind()
        self._check_sizes()
        self._check_retention()
        check_full(self.kind, self.by, self.emit.early, self.emit.full)
        self._check_outer()
        _ = self.emit.policies

    def _check_kind(self) -> None:
        needed = {SLIDING: (), SESSION: ("gap",), HOPPING: ("size", "advance")}.get(self.kind, ("size",))
        allowed = needed if self.kind in (SLIDING, SESSION) else (*needed, "offset")
        for name in ("size", "advance", "offset", "gap"):
            value = getattr(self, name)
            if value is None and name in needed:
                raise ConfigError(f"join.{name}: is missing; {self.kind} joins need one")
            if value is not None and name not in allowed:
                raise ConfigError(f"join.{name}: is of other joins than {self.kind} ones; remove it")
            if value is not None and self.on_axis(name, value) <= 0 and name != "offset":
                raise ConfigError(f"join.{name}: {value!r} must be more than zero")
        if self.kind == SESSION and not self.on:
            raise ConfigError("join.on: is empty; sessions are of a key, name the equal fields")
        if self.kind == HOPPING and self.on_axis("advance", self.advance) > self.on_axis("size", self.size):
            raise ConfigError(f"join.advance: {self.advance!r} is longer than the size, {self.size!r}; write less")

    def _check_outer(self) -> None:
        if not self.outer:
            if self.emit.unmatched is not None:
                raise ConfigError(
                    f"emit.unmatched: {self.emit.unmatched!r} is of outer joins; write join.type = 'left', 'right' or 'full', or remove it"
                )
            return
        if self.by != TIME_AXIS:
            raise ConfigError(f"join.type: {self.type!r} is of joins by time, and this one is by count; write 'inner'")
        if "idle" not in self.model_fields_set:
            raise ConfigError(
                f"join.idle: is missing; with type = {self.type!r} it says after how long a silent side counts as one that brings no partner, for example '10 minutes'"
            )
        if self.unmatched == BATCH and self.emit.full is not None:
            raise ConfigError(
                f"emit.full: {self.emit.full!r} does not go with unmatched = 'batch', whose rows are deleted when their pairs are sent; remove one of them"
            )
        for name in ("early", "late"):
            value = getattr(self.emit, name)
            if self.unmatched == BATCH and value != BATCH:
                raise ConfigError(
                    f"emit.{name}: {value!r} does not go with unmatched = 'batch', whose rows are deleted when their pairs are sent; write 'batch'"
                )

    def _check_sizes(self) -> None:
        sizes = {at: side.size for at, side in self.sides.items()}
        for at, size in sizes.items():
            if self.kind != SLIDING and size is not None:
                raise ConfigError(f"join.{at}.size: is of sliding joins, and this one is {self.kind}; remove it")
            if self.kind == SLIDING and size is None:
                raise ConfigError(
                    f"join.{at}.size: is missing; write a length, or {UNBOUNDED!r} for as retention allows"
                )
            self.size_of(at)
            if self.by != TIME_AXIS and isinstance(size, int) and size < 1:
                raise ConfigError(f"join.{at}.size: {size!r} must be one message or more")
        if self.kind == SLIDING and set(sizes.values()) == {UNBOUNDED}:
            raise ConfigError("join.right.size: 'unbounded' stands on both sides; write a length on one of them")

    def check_event(self, event: EventSection) -> None:
        """Refuse to look for duplicates among messages that are numbered."""
        if event.unique_for is not None and self.by != TIME_AXIS:
            raise ConfigError(
                "join: unique_for is not for joins by count, which number messages before duplicates are found; remove it"
            )

    def _check_retention(self) -> None:
        by_time = self.by == TIME_AXIS
        needed = "retention" if by_time else "retention_count"
        retention = self.retention_us if by_time else self.retention_count
        if getattr(self, needed) is None or retention is None:
            raise ConfigError(f"join.{needed}: is missing; joins by {self.by} need one")
        beside = not by_time and self.retention is not None
        for name, stands in (("retention", beside), ("grace", not by_time and self.grace_us > 0)):
            if stands:
                raise ConfigError(f"join.{name}: does not go with by = {self.by!r}; remove it")
        if by_time and self.retention_count is not None and self._reaches_back:
            raise ConfigError(
                "join.retention_count: is needed only with sizes on both sides, or with windows; here any stored message may have "
                "partners, remove it"
            )
        least = self._least_us + (0 if self.grace is None else self.grace_us)
        if retention < least:
            text = f"'{spoken_duration(least)}'" if by_time else str(least)
            raise ConfigError(
                f"join.{needed}: {getattr(self, needed)!r} is shorter than sizes and grace ask for; write {text} or more"
            )

    @property
    def _sizes(self) -> tuple[int | None, int | None]:
        return self.size_of(LEFT), self.size_of(RIGHT)

    @property
    def _least_us(self) -> int:
        """How long messages must be kept at least, on the axis, without a grace."""
        lengths = {name: self.on_axis(name, getattr(self, name)) for name in ("size", "advance", "gap")}
        return least_retention(self.kind, self._sizes, **lengths)

    def bound_settings(self) -> dict[str, Any]:
        """Return the settings that decide which pairs there are, and which columns their rows have."""
        lengths = {f"join.{n}": self.on_axis(n, getattr(self, n)) for n in ("size", "advance", "offset", "gap")}
        sides = {
            f"join.{at}": {"name": side.name, "size": self.size_of(at), "columns": list(side.columns)}
            for at, side in self.sides.items()
        }
        return {
            "join.on": [list(p) for p in self.pairs_on],
            "join.by": self.by,
            "join.kind": self.kind,
            **lengths,
            **sides,
            # None of inner joins, as in commits of before there were others.
            "join.type": self.type if self.outer else None,
            "emit.unmatched": self.unmatched if self.outer else None,
            # Which messages have a partner must not change while they are stored.
            "join.grace": self.grace_us if self.outer and self._reaches_back else None,
            "join.retention": self.retention_us if self.outer and self._reaches_back else None,
        }

    def live_settings(self) -> dict[str, Any]:
        """Return the policies and the other settings that may change."""
        others = {"retention_count": self.retention_count or 0, "idle_us": self.idle_us}
        return {"emit": asdict(self.emit.policies), **others}
