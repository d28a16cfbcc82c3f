"""The sections [session], [quarantine] and [ttl] of a config."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Tag, TypeAdapter

from sessionlake.config.durations import format_duration, parse_duration, spoken_duration
from sessionlake.config.fields import Duration, Section
from sessionlake.config.sections import Facts, GracedSection
from sessionlake.config.times import format_time
from sessionlake.errors import ConfigError
from sessionlake.operators.sessions.changelog import QUARANTINED, QUARANTINED_KEYS, quarantined_keys_sql
from sessionlake.operators.sessions.earlier import NEVER_US, EarlierSection, as_keys, check_cells, limits_over_time
from sessionlake.operators.sessions.thresholds import RATE, RULE, Quarantine, check_length, parse_rate, rate_sql
from sessionlake.operators.shared.cleanups.section import BoundedSection, BoxedSection, ConditionSection
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.operators.shared.windowing.policies import CLOSE, OFF, Policies


class QuarantineSection(Section):
    """Which sessions are kept apart; above any of the thresholds."""

    max_events: int | None = Field(default=None, ge=1)
    max_rate: str | None = None
    """Events per minute, second or hour of a session's length, one minute at least."""
    max_length: Duration | None = None

    @property
    def thresholds(self) -> Quarantine:
        """The thresholds as numbers; ConfigError if a rate is none."""
        return Quarantine(
            self.max_events,
            None if self.max_rate is None else parse_rate(self.max_rate),
            None if self.max_length is None else parse_duration(self.max_length),
        )

    def settings(self) -> dict[str, Any]:
        """Return the thresholds as JSON values."""
        found = self.thresholds
        return {**asdict(found), "max_rate": found.max_rate and list(found.max_rate)}

    def check(self, max_length_us: int | None) -> None:
        """Refuse a section without a threshold, and one that no session of such a length can be above."""
        if self.thresholds == Quarantine():
            raise ConfigError("quarantine: has no threshold; write max_events, max_rate or max_length")
        check_length(self.thresholds.max_length_us, max_length_us)


class SessionTtlSection(ConditionSection):
    """When closed sessions expire; each pattern has a class."""

    @property
    def max_duration_us(self) -> int | None:
        """How long a cleanup of a shard may take, about; None if it looks at all sessions."""
        return None

    @property
    def most(self) -> int | None:
        """How many sessions of a shard a cleanup removes at most; None if it is bounded in time."""
        return None

    def check_age(self, retention_us: int) -> None:
        """Refuse ages that no session in the stores comes to."""
        if self.ttl is not None and parse_duration(self.ttl) > retention_us:
            raise ConfigError(
                f"ttl.ttl: {self.ttl!r} is longer than session.retention, {format_duration(retention_us)!r}, after which "
                "sessions leave the stores; raise that, or use the job `expire` (expire.ttl)"
            )


class ScannedSessions(SessionTtlSection, BoundedSection):
    """A cleanup looks at all sessions."""

    pattern: Literal["scan"]

    @property
    def most(self) -> int:
        """How many sessions of a shard a cleanup removes at most."""
        return self.max_per_cleanup


class TimeBoxedSessions(SessionTtlSection, BoxedSection):
    """A cleanup looks at sessions for a time, and the next one goes on."""

    pattern: Literal["time_boxed"]

    @property
    def max_duration_us(self) -> int:
        """How long a cleanup of a shard may take, about."""
        return parse_duration(self.max_duration)


SessionTtl = Annotated[ScannedSessions | TimeBoxedSessions, Field(discriminator="pattern")]
"""The section [ttl] of sessions; other patterns are for tables: sessions expire by whole segments, by `session.retention`."""


def _emit_kind(value: object) -> str:
    return "key" if isinstance(value, str) else "section"


Emit = Annotated[
    Annotated[Literal["update", "final"], Tag("key")] | Annotated[EmitSection, Tag("section")],
    Discriminator(_emit_kind),
]


class SessionSection(GracedSection):
    """The session windows."""

    RESERVED: ClassVar[frozenset[str]] = frozenset(
        ("session_key", "session_start", "session_end", "session_id", "session_date")
    )
    BESIDE: ClassVar[tuple[str, ...]] = ("aggregates", "quarantine", "ttl", "emit")
    ALSO_KEYS: ClassVar[frozenset[str]] = frozenset(("emit",))
    CHANGES: ClassVar[tuple[str, str]] = ("a session", "it could have gone on")
    HAD_NO_GRACE: ClassVar[bool] = True
    CUTS: ClassVar[tuple[str, ...]] = (
        "session.gap",
        "session.max_length",
        "session.max_length_offset",
        "session.before",
    )

    gap: Duration
    retention: Duration | None = None
    retention_count: int | None = Field(default=None, ge=1)
    """How many accepted events are kept at most, about: older ones are beyond retention as well."""
    beyond_retention: Literal["dead_letter", "drop", "emit"] = "dead_letter"
    emit: Emit = "update"
    """The sessions that readers see if every change is logged; or the section [emit], which says when sessions are sent."""
    gap_by: str | None = None
    """SQL over the event: its own gap, null for `gap`."""
    max_gap: Duration | None = None
    """The largest that `gap_by` may give."""
    max_length: Duration | None = None
    """No session crosses a multiple of it, counted from 1970-01-01 UTC + `max_length_offset`."""
    max_length_offset: Duration = "0 seconds"
    before: list[EarlierSection] = Field(default=[])
    """The gaps and limits that held for earlier event times, the earliest first. No session crosses one of their times."""
    quarantine: QuarantineSection | None = None
    """Which sessions are kept apart from those that are shown; none if it is left out."""
    ttl: SessionTtl | None = None
    """When closed sessions expire; with their retention if it is left out."""

    @property
    def max_gap_us(self) -> int | None:
        """The largest gap of an event's own; None if all have `gap`."""
        return None if self.max_gap is None else parse_duration(self.max_gap)

    @property
    def max_length_us(self) -> int | None:
        """The length of the cells into which sessions are cut, for example "1 day"; None if they are not cut."""
        return None if self.max_length is None else parse_duration(self.max_length)

    @property
    def offset_us(self) -> int:
        """The start of the cells, counted from 1970-01-01 UTC."""
        return parse_duration(self.max_length_offset)

    @property
    def widest_us(self) -> int:
        """The largest gap that any event has."""
        return max([self.max_gap_us or self.gap_us, *(earlier.bound[1] for earlier in self.before)])

    @property
    def gap_us(self) -> int:
        """Inactivity gap."""
        return parse_duration(self.gap)

    @property
    def default_grace_us(self) -> int:
        """Retention - gap (max_gap); none if there is no retention either."""
        return 0 if self.retention is None else max(0, self.retention_us - self.widest_us)

    @property
    def retention_us(self) -> int:
        """Retention; gap (max_gap) + grace if none is given."""
        return self.widest_us + self.grace_us if self.retention is None else parse_duration(self.retention)

    @property
    def skew_us(self) -> int:
        """The grace; the gap if none is written, so that an early event does not close sessions of now."""
        return self.gap_us if self.grace is None else self.grace_us

    @property
    def harmless_us(self) -> int:
        """Gap + grace: so long a session of one event stays open."""
        return self.gap_us + self.grace_us

    @property
    def least_unique_us(self) -> int:
        """Gap (max_gap) + grace: so long a session of one event stays open at most."""
        return self.widest_us + self.grace_us

    @property
    def base_us(self) -> int:
        """The gap of the earliest times. No change moves it, so that marks of how far sessions are closed stay valid."""
        return self.before[0].bound[1] if self.before else self.gap_us

    @property
    def to_close_us(self) -> int:
        """The gap of the earliest times + grace."""
        return self.base_us + self.grace_us

    def closing_sql(self, micros: str, end: str) -> str:
        """Return the SQL of the end; if sessions are limited, of `open_until` less the gap of the earliest times, which closes at the same time."""
        if self.max_gap_us is not None:
            return f"{micros.format('open_until')} - {self.base_us}"
        time = micros.format(end)
        closing = self._closing_sql(time, self.gap_us, self.max_length_us, self.offset_us)
        for earlier in reversed(self.before):
            until_us, gap_us, length_us, offset_us = earlier.bound
            cut = f"least({self._closing_sql(time, gap_us, length_us, offset_us)}, {until_us - 1 - self.base_us})"
            closing = f"(case when {time} < {until_us} then {cut} else {closing} end)"
        return closing

    def _closing_sql(self, time: str, gap_us: int, length_us: int | None, offset_us: int) -> str:
        """Return the SQL of `open_until` less the gap of the earliest times, of sessions with a gap and cells."""
        ends = time if gap_us == self.base_us else f"{time} + {gap_us - self.base_us}"
        if length_us is None:
            return ends
        # In SQL, unlike Python, the remainder of a negative number is negative.
        into = f"((({time}) - {offset_us}) % {length_us} + {length_us}) % {length_us}"
        return f"least({ends}, {time} - {into} + {length_us - 1 - self.base_us})"

    @property
    def closes_late_us(self) -> int:
        """By a gap of an event's own, or one of before, which may be wider."""
        return self.widest_us - self.base_us

    @property
    def reserved(self) -> frozenset[str]:
        """Column names that an aggregate can't have: with [quarantine] those of its view, too."""
        sent = set() if self.policies is None else {"trigger", "emitted_at", "final"}
        return super().reserved | ({RULE, RATE} if self.facts.quarantines else set()) | sent

    def quarantined_sql(self, micros: str) -> str | None:
        """Return SQL of the threshold that a session's row is above, null for none; None without [quarantine]."""
        return None if self.quarantine is None else self.quarantine.thresholds.rule_sql(micros)

    def further_views(self, engine: str, micros: str, every: str) -> Mapping[str, str]:
        """Return the views of [quarantine]: the sessions that it keeps apart, and their number by key."""
        rule = self.quarantined_sql(micros)
        if rule is None:
            return {}
        sessions = f"select *, {rule} as {RULE}, {rate_sql(micros)} as {RATE} from {every} where {rule} is not null"  # noqa: S608 (names of our own)
        return {QUARANTINED: sessions, QUARANTINED_KEYS: quarantined_keys_sql(engine)}

    @property
    def facts(self) -> Facts:
        """A session ends with its last event, and can always be removed. With [emit] rows are what was sent, and sessions go on."""
        sent = self.policies is not None
        goes_on = "would take for closed what was sent of a session that goes on; write emit.early = 'off' and emit.full = 'close'"
        return Facts(
            shown="marked" if sent else "final" if self.emit == "final" else "all",
            ends_inclusive=True,
            removes_open=True,
            sums_events=not sent,
            knows_replaced=not sent,
            stores_are_rows=not sent,
            rows_lag=sent,
            not_final=goes_on if sent and not self.sends_finals else "",
            bound_in_time=True,
            keeps_until=self.max_gap is not None,
            quarantines=self.quarantine is not None,
        )

    @property
    def sends_finals(self) -> bool:
        """Whether [emit] sends each session when it closes, and not before."""
        emit = self.policies
        return emit is not None and (emit.early, emit.full) == (OFF, CLOSE)

    @property
    def policies(self) -> Policies | None:
        """When sessions are sent; None if every change is sent with its batch."""
        return self.emit.policies if isinstance(self.emit, EmitSection) else None

    def in_words(self) -> str:
        """Return in words when a session ends, and until when it changes."""
        own = f" ({self.gap_by!r}, up to {self.max_gap})" if self.gap_by else ""
        cut = f", cut at multiples of {self.max_length}" if self.max_length else ""
        before = "".join(f", before {earlier.until} at most {earlier.gap}" for earlier in reversed(self.before))
        return (
            f"sessions of events at most {self.gap} apart{own}{cut}{before}{self._sent_in_words()}; events change a session until "
            f"{spoken_duration(self.grace_us)} after it could have gone on"
        )

    def _sent_in_words(self) -> str:
        emit = self.policies
        if emit is None:
            return ""
        sent = "closes" if emit.full == CLOSE else "ends"
        return f", each sent as it {sent}" + ("" if emit.early == OFF else ", and changes before that")

    def grace_told(self) -> str | None:
        """Return in words the grace that follows from the retention, or from its lack; None if one is written."""
        if self.grace is not None or self.retention is not None:
            return super().grace_told()
        return (
            f"is not written, nor a retention: a session takes no event that comes more than {spoken_duration(self.widest_us)} after "
            "its last one; write retention = '7 days' for such events, or grace = '0 seconds'"
        )

    def checks(self) -> Iterator[Callable[[], None]]:
        """Yield the checks of [session], [quarantine] and [ttl]."""
        yield self.check
        if self.quarantine is not None:
            lengths = [self.max_length_us, *(earlier.bound[2] for earlier in self.before)]
            yield partial(
                self.quarantine.check,
                max((us for us in lengths if us is not None and None not in lengths), default=None),
            )
        if self.ttl is not None:
            yield self.ttl.check
            yield partial(self.ttl.check_age, self.retention_us)

    def check(self) -> None:
        """Refuse an empty gap, limits that don't go together, and a retention shorter than gap (max_gap) + grace."""
        if self.gap_us == 0:
            raise ConfigError(f"session.gap: {self.gap!r} must be longer than zero; write for example '30 minutes'")
        self._check_limits()
        self._check_before()
        needed = (self.max_gap_us or self.gap_us) + self.grace_us
        if self.retention_us < needed:
            gap = "gap" if self.max_gap is None else "max_gap"
            raise ConfigError(
                f"session.retention: {self.retention!r} is shorter than {gap} + grace = {spoken_duration(needed)}; "
                f"write '{spoken_duration(needed)}' or longer"
            )
        if isinstance(self.emit, EmitSection):
            self._check_emit(self.emit)

    def _check_emit(self, emit: EmitSection) -> None:
        emit.check("session.grace", "session", graced=self.grace is not None)
        if emit.policies.updates:
            raise ConfigError(
                "emit: early = late = 'batch' sends every change with its batch, as sessions do without it; "
                "remove [emit], or write another policy"
            )

    def _check_limits(self) -> None:
        if self.gap_by is not None and self.max_gap is None:
            raise ConfigError("session.max_gap: is missing; gap_by needs it, write the largest gap it may give")
        if self.gap_by is None and self.max_gap is not None:
            raise ConfigError(f"session.max_gap: {self.max_gap!r} is for gap_by; write gap_by, or remove it")
        if self.max_gap_us is not None and self.max_gap_us < self.gap_us:
            raise ConfigError(
                f"session.max_gap: {self.max_gap!r} is shorter than the gap; write '{spoken_duration(self.gap_us)}' or longer"
            )
        widest = (self.gap_us, "gap") if self.max_gap_us is None else (self.max_gap_us, "max_gap")
        check_cells("session", self, widest)

    def _check_before(self) -> None:
        if self.before and self.gap_by is not None:
            raise ConfigError(
                "session.before: says which gap all events had, and gap_by gives each event its own; remove one of the two"
            )
        for number, earlier in enumerate(self.before):
            earlier.check(f"session.before.{number}")
            if number and earlier.until_us <= self.before[number - 1].until_us:
                raise ConfigError(
                    f"session.before.{number}.until: {earlier.until} is not after that of the one above; write the earliest first"
                )

    def reads(self, side: str) -> Mapping[str, Sequence[str] | str | None]:
        """Return the SQL of the gap, if each event has its own."""
        del side
        return {} if self.gap_by is None else {"session.gap_by": self.gap_by}

    def bound_settings(self) -> dict[str, Any]:
        """Return the gap, and the limits; those that are not set as null, which a pipeline of before has none of."""
        return {
            "session.gap": self.gap_us,
            "session.gap_by": self.gap_by,
            "session.max_gap": self.max_gap_us,
            "session.max_length": self.max_length_us,
            "session.max_length_offset": self.offset_us or None,
            "session.before": [earlier.bound for earlier in self.before] or None,
            "emit": None if self.policies is None else "by policy",
        }

    def same_until(self, bound: Mapping[str, Any], time_us: int | None) -> bool:
        """Say whether gaps and limits are the same for all event times up to one."""
        return limits_over_time(bound, time_us) == limits_over_time(self.bound_settings(), time_us)

    def before_in_words(self, bound: Sequence[Sequence[Any]]) -> str:
        """Return the gap and the limit of each time."""
        return ", ".join(
            f"{spoken_duration(gap_us)}{'' if length_us is None else f', at most {spoken_duration(length_us)} long,'} before {format_time(until_us)}"
            for until_us, gap_us, length_us, _ in bound
        )

    def cut_too_early(self, bound: Mapping[str, Any], reached_us: int | None, told: str) -> str | None:
        """Return the line about a time of [[session.before]] that is new, and not after one that is reached, as `told`."""
        known = [until_us for until_us, *_ in bound.get("session.before") or ()]
        for number, earlier in enumerate(self.before):
            if reached_us is not None and earlier.until_us <= reached_us and earlier.until_us not in known:
                return (
                    f"session.before.{number}.until: {earlier.until} is not after {told}, {format_time(reached_us)}, so there are "
                    "sessions of another gap after it; write a later time"
                )
        return None

    def kept_before(self, bound: Mapping[str, Any], until_us: int) -> Mapping[str, str] | None:
        """Return the gap and the limit of `bound`; None if [[session.before]] differs, or gaps are the events' own."""
        gap_us, length_us, offset_us = (
            bound.get(f"session.{name}") for name in ("gap", "max_length", "max_length_offset")
        )
        own = self.gap_by is not None or bound.get("session.gap_by") is not None
        if (
            own
            or gap_us is None
            or [list(earlier.bound) for earlier in self.before] != (bound.get("session.before") or [])
        ):
            return None
        kept = {"gap": gap_us, "max_length": length_us, "max_length_offset": offset_us}
        return {
            "until": format_time(until_us).replace("+00:00", "Z"),
            **{name: f'"{spoken_duration(us)}"' for name, us in kept.items() if us is not None},
        }

    def as_taken(self, bound: Mapping[str, Any], live: Mapping[str, Any]) -> Self:
        """Return the section with the gaps and limits of a batch's settings, and its grace if none is written."""
        graced = super().as_taken(bound, live)
        theirs, ours = (limits_over_time(some, NEVER_US) for some in (bound, self.bound_settings()))
        if theirs == ours or bound.get("session.gap") is None:
            return graced
        before = [EarlierSection.of(limits) for limits in theirs[:-1]]
        return graced.model_copy(update={**as_keys(theirs[-1]), "before": before})

    def live_settings(self) -> dict[str, Any]:
        """Return the thresholds of [quarantine], and [ttl]."""
        found: dict[str, Any] = {} if self.quarantine is None else {"quarantine": self.quarantine.settings()}
        if self.policies is not None:
            found["emit"] = asdict(self.policies)
        if self.retention_count is not None:
            found["retention_count"] = self.retention_count
        return found if self.ttl is None else {**found, "ttl": self.ttl.settings()}


def session_ttl_section(value: Mapping[str, Any]) -> SessionTtlSection:
    """Return the section [ttl] with these keys and values."""
    section: SessionTtlSection = TypeAdapter(SessionTtl).validate_python(value)
    return section
