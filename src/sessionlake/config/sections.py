"""The sections of a pipeline's config, one class each."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sessionlake.config.durations import format_duration, parse_duration
from sessionlake.config.quarantine import Quarantine, check_length, parse_rate
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.config.source import SourceSection


def _duration(text: str) -> str:
    try:
        parse_duration(text)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("duration: ")) from error
    return text


Duration = Annotated[str, AfterValidator(_duration)]


class Section(BaseModel):
    """A table of the config file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PipelineSection(Section):
    """Where the pipeline lives and how it runs."""

    name: str
    warehouse: str
    shards: int = Field(default=4, ge=1, le=4096)
    trigger: Duration = "10 seconds"
    store: str = "store"
    """Local directory of the session stores: a cache, restored from Delta when lost. $VARIABLES are each executor's own."""
    code: str | None = None
    """Directory that users' classes of [aggregates] are looked for in, too, after all that is installed."""
    archive: bool = False
    """Keep every event that was not refused in the table `events`, so that a source which forgets can be read again."""


class EventSection(Section):
    """Which columns make an event."""

    key: str | None = None
    """May be left out with [window]: then all events have one key, the empty text."""
    time: str | None = None
    """May be left out with windows by count: then an event's time is the clock of its batch."""
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    id: str | None = None
    max_future_skew: Duration | None = None
    max_key_bytes: int = Field(default=65_536, ge=1)
    """An event whose key is longer, in bytes of UTF-8, is a dead letter."""


class SideSection(Protocol):
    """One of several event inputs."""

    @property
    def source(self) -> "SourceSection":
        """What is read."""

    @property
    def event(self) -> EventSection:
        """Which columns make an event."""


class OperatorSection(Section):
    """A section that says what is computed; `config.operators` names them. Subclasses add the keys of their operator."""

    RESERVED: ClassVar[frozenset[str]] = frozenset()
    """Column names that an aggregate can't have, beside those of sessions; in lower case."""
    KIND: ClassVar[str | None] = None
    """The operator's kind as module:name, where it is not the one that `config.operators` names."""
    BESIDE: ClassVar[tuple[str, ...]] = ()
    """Sections of the config that belong to the operator, too, each a field here."""

    beyond_retention: str = "dead_letter"
    """What becomes of events beyond retention."""

    KEYED: ClassVar[bool] = True
    """Whether the config must name the events' key."""
    PATIENCE: ClassVar[str] = "grace"
    """The key of what is to be raised where too much comes too late: `grace_us` is its value."""
    AGGREGATES: ClassVar[bool] = True
    """Whether what is computed may have aggregates."""
    CLOSES: ClassVar[bool] = True
    """Whether rows ever become final."""

    @property
    def sides(self) -> Mapping[str, SideSection]:
        """The event inputs by name where there are several; then no [source] and no [event] stand beside the section."""
        return {}

    @property
    def keys(self) -> Mapping[str, tuple[str, ...]]:
        """By input of `sides` the columns that make its key."""
        return {}

    def reading(self, sources: Mapping[str, "SourceSection"]) -> Self:
        """Return the section with other sources of its `sides`."""
        del sources
        return self

    @property
    def grace_us(self) -> int:
        """How long after its end a window still changes, microseconds."""
        raise NotImplementedError

    @property
    def retention_us(self) -> int:
        """How long before the watermark events are taken in, microseconds."""
        raise NotImplementedError

    @property
    def skew_us(self) -> int:
        """How far ahead of the clock events may be where the config does not say, microseconds; a minute at least."""
        return self.grace_us

    @property
    def ends_inclusive(self) -> bool:
        """Whether a row's end is in it."""
        return False

    @property
    def to_close_us(self) -> int:
        """How far after its end a row is final: once the watermark lies more than this beyond it."""
        return self.grace_us if self.ends_inclusive else self.grace_us - 1

    def closed_us(self, watermark_us: int | None) -> int | None:
        """Return the time strictly before which a row ends if events can't change it any more; None before the first watermark."""
        return None if watermark_us is None else watermark_us - self.to_close_us

    @classmethod
    def variant(cls, value: Mapping[str, Any]) -> "type[OperatorSection]":
        """Return the class of a section with these keys: several may share a name."""
        del value
        return cls

    def without_key(self) -> "OperatorSection":
        """Return the section as it is meant where events have no key."""
        return self

    @property
    def by_count(self) -> bool:
        """Whether rows start and end with numbers of messages, and not at times."""
        return False

    def final_sql(self, end: str, state: Mapping[str, Any]) -> str:
        """Return the condition, in Spark's SQL and DuckDB's with its macro `unix_micros`, of a row that events can't change any more.

        `end` is the column of the end, `state` the operator's after the last batch.
        """
        closed = self.closed_us(state.get("watermark_us"))
        return "false" if closed is None else f"{self.closing_sql('unix_micros({})', end)} < {closed}"

    def closing_sql(self, micros: str, end: str) -> str:
        """Return, as SQL, the time of a row that must lie strictly before `closed_us` for the row to be final: its end.

        `micros` makes whole microseconds of a time, as `unix_micros({})`.
        """
        return micros.format(end)

    @property
    def closes_late_us(self) -> int:
        """How much later than a row ends `closing_sql` may lie."""
        return 0

    @property
    def keeps_until(self) -> bool:
        """Whether rows have a column `open_until`: until when they take events does not follow from their end."""
        return False

    @property
    def shown(self) -> Literal["all", "final", "marked"]:
        """What the live view has: all rows; those that are final; or all, with a column `final`."""
        return "marked"

    @property
    def sums_events(self) -> bool:
        """Whether each accepted event is in exactly one row, so that the rows' event_count add up to the accepted events."""
        return True

    @property
    def hides_us(self) -> int | None:
        """How long after they were written rows expire without a change that tells of it; None where all changes are told."""
        return None

    @property
    def removes_open(self) -> bool:
        """Whether a tombstone removes a row that is not final, too."""
        return False

    def check(self) -> None:
        """Raise ConfigError where values that are right one by one don't go together."""

    def check_source(self, source: "SourceSection") -> None:
        """Raise ConfigError where the operator can't be fed by a source like this."""
        del source

    def check_event(self, event: EventSection) -> None:
        """Raise ConfigError where the operator can't be fed with events like these."""
        del event

    def bound_settings(self) -> dict[str, Any]:
        """Return the settings that the tables are bound to, by their names in the config; JSON values."""
        raise NotImplementedError

    def live_settings(self) -> dict[str, Any]:
        """Return the settings, beside those of every operator, that may change from batch to batch; JSON values."""
        return {}


class SessionSection(OperatorSection):
    """The session windows."""

    gap: Duration
    grace: Duration = "0 seconds"
    retention: Duration | None = None
    beyond_retention: Literal["dead_letter", "drop", "emit"] = "dead_letter"
    emit: Literal["update", "final"] = "update"
    gap_by: str | None = None
    """SQL over the event: its own gap, null for `gap`."""
    max_gap: Duration | None = None
    """The largest that `gap_by` may give."""
    max_length: Duration | None = None
    """No session crosses a multiple of it, counted from 1970-01-01 UTC + `max_length_offset`."""
    max_length_offset: Duration = "0 seconds"

    @property
    def max_gap_us(self) -> int | None:
        """The largest gap of an event's own; None where all have `gap`."""
        return None if self.max_gap is None else parse_duration(self.max_gap)

    @property
    def max_length_us(self) -> int | None:
        """How long the cells are that sessions are cut into; None where they are not."""
        return None if self.max_length is None else parse_duration(self.max_length)

    @property
    def offset_us(self) -> int:
        """Where the cells begin, after 1970-01-01 UTC."""
        return parse_duration(self.max_length_offset)

    @property
    def widest_us(self) -> int:
        """The largest gap that any event has."""
        return self.max_gap_us or self.gap_us

    @property
    def gap_us(self) -> int:
        """Inactivity gap."""
        return parse_duration(self.gap)

    @property
    def grace_us(self) -> int:
        """Grace after session_end + gap."""
        return parse_duration(self.grace)

    @property
    def retention_us(self) -> int:
        """Retention; gap (max_gap) + grace where none is given."""
        return self.widest_us + self.grace_us if self.retention is None else parse_duration(self.retention)

    @property
    def ends_inclusive(self) -> bool:
        """The end is the time of the last event."""
        return True

    @property
    def to_close_us(self) -> int:
        """Gap + grace."""
        return self.gap_us + self.grace_us

    def closing_sql(self, micros: str, end: str) -> str:
        """Return the end; where sessions are limited, `open_until` less the gap, which is as far from closing."""
        if self.max_gap_us is not None:
            return f"{micros.format('open_until')} - {self.gap_us}"
        time = micros.format(end)
        if self.max_length_us is None:
            return time
        # In SQL, unlike Python, the remainder of a negative number is negative.
        length = self.max_length_us
        into = f"((({time}) - {self.offset_us}) % {length} + {length}) % {length}"
        return f"least({time}, {time} - {into} + {length - 1 - self.gap_us})"

    @property
    def closes_late_us(self) -> int:
        """By a gap of an event's own, which may be wider."""
        return self.widest_us - self.gap_us

    @property
    def keeps_until(self) -> bool:
        """Whether events have gaps of their own."""
        return self.max_gap is not None

    @property
    def shown(self) -> Literal["all", "final", "marked"]:
        """All, or with emit = "final" those that are final."""
        return "final" if self.emit == "final" else "all"

    @property
    def removes_open(self) -> bool:
        """Any session can be removed."""
        return True

    def check(self) -> None:
        """Refuse an empty gap, limits that don't go together, and a retention shorter than gap (max_gap) + grace."""
        if self.gap_us == 0:
            raise ConfigError(f"session.gap: {self.gap!r} must be longer than zero; write for example '30 minutes'")
        self._check_limits()
        needed = self.widest_us + self.grace_us
        if self.retention_us < needed:
            gap = "gap" if self.max_gap is None else "max_gap"
            raise ConfigError(
                f"session.retention: {self.retention!r} is shorter than {gap} + grace = {format_duration(needed)}; "
                f"write '{format_duration(needed)}' or longer"
            )

    def _check_limits(self) -> None:
        if self.gap_by is not None and self.max_gap is None:
            raise ConfigError("session.max_gap: is missing; gap_by needs it, write the largest gap it may give")
        if self.gap_by is None and self.max_gap is not None:
            raise ConfigError(f"session.max_gap: {self.max_gap!r} is for gap_by; write gap_by, or remove it")
        if self.max_gap_us is not None and self.max_gap_us < self.gap_us:
            raise ConfigError(
                f"session.max_gap: {self.max_gap!r} is shorter than the gap; write '{format_duration(self.gap_us)}' or longer"
            )
        if self.max_length is None and self.offset_us:
            raise ConfigError(
                f"session.max_length_offset: {self.max_length_offset!r} is for max_length; write max_length, or remove it"
            )
        if self.max_length_us is not None and self.max_length_us < self.widest_us:
            gap = "gap" if self.max_gap is None else "max_gap"
            raise ConfigError(
                f"session.max_length: {self.max_length!r} is shorter than {gap}; write '{format_duration(self.widest_us)}' or longer"
            )
        if self.max_length_us is not None and self.offset_us >= self.max_length_us:
            raise ConfigError(
                f"session.max_length_offset: {self.max_length_offset!r} must be shorter than max_length; write what is left of it"
            )

    def bound_settings(self) -> dict[str, Any]:
        """Return the gap, and the limits; those that are not set as null, which a pipeline of before has none of."""
        return {
            "session.gap": self.gap_us,
            "session.gap_by": self.gap_by,
            "session.max_gap": self.max_gap_us,
            "session.max_length": self.max_length_us,
            "session.max_length_offset": self.offset_us or None,
        }


class QuarantineSection(Section):
    """Which sessions are kept apart; above any of the thresholds."""

    max_events: int | None = Field(default=None, ge=1)
    max_rate: str | None = None
    """Events per minute, second or hour of a session's length, one minute at least."""
    max_length: Duration | None = None

    @property
    def thresholds(self) -> Quarantine:
        """The thresholds as numbers; ConfigError where a rate is none."""
        return Quarantine(
            self.max_events,
            None if self.max_rate is None else parse_rate(self.max_rate),
            None if self.max_length is None else parse_duration(self.max_length),
        )

    def settings(self) -> dict[str, Any]:
        """Return the thresholds as JSON values."""
        found = self.thresholds
        return {**asdict(found), "max_rate": found.max_rate and list(found.max_rate)}

    def check(self, session: SessionSection) -> None:
        """Refuse a section without a threshold, and one that no session can be above."""
        if self.thresholds == Quarantine():
            raise ConfigError("quarantine: has no threshold; write max_events, max_rate or max_length")
        check_length(self.thresholds.max_length_us, session.max_length_us)


class CompactSection(Section):
    """How the compaction job keeps the snapshot and the changelog."""

    safety: Duration = "1 day"
    """How long changes stay in the changelog after they were folded into the snapshot."""
    file_mb: int = Field(default=128, ge=1, le=4096)
    """Size of the files that compaction aims at."""
    archive: Duration | None = None
    """How long events stay in the archive, before the watermark; for ever where none is given."""
    dead_letters: Duration = "365 days"
    """How long dead letters of events keep their text, key and time; the rows stay, with their reason and place."""
    runs: Duration = "90 days"
    """How long runs of compact and quality stay in job_runs, and their results in quality_results and Data Docs."""
    vacuum: Duration = "7 days"
    """How long files that belong to no table version stay; the table's own retention where that is longer."""


Between = Annotated[list[float], Field(min_length=2, max_length=2)]
Rate = Annotated[float, Field(ge=0, le=1)]


class AggregateBounds(Section):
    """Bounds on the distribution of one aggregate over all sessions; inclusive, each a list of two."""

    range: Between | None = None
    mean: Between | None = None
    quantiles: dict[str, Between] = {}
    """Bounds by quantile, a number between 0 and 1 written as text."""
    severity: Literal["warning", "critical"] = "warning"


class QualitySection(Section):
    """What the quality job expects, beyond what always holds."""

    expectations: str | None = None
    """Directory of the suites; `expectations` beside the config where that exists, else those of the package."""
    max_age: Duration = "1 day"
    """Age of the last commit."""
    rates_over: Duration = "7 days"
    """The rates below are those of the batches committed this long before the last commit."""
    max_null_key_rate: Rate = 0.01
    max_late_rate: Rate = 0.05
    max_dead_rate: Rate = 0.05
    max_quarantine_rate: Rate = 0.05
    """Share of sessions that are in quarantine."""
    aggregates: dict[str, AggregateBounds] = {}


class ExpireSection(Section):
    """What the job `expire` removes, and how fast."""

    ttl: Duration | None = None
    where: str | None = None
    """SQL over a session's row; where a ttl is given too, either of them is enough."""
    tables: dict[str, str] = {}
    """Delta tables that `where` may name."""
    max_tombstones_per_second: int = Field(default=10_000, ge=1)
    max_per_run: int | None = Field(default=None, ge=1)
    max_share: Annotated[float, Field(gt=0, le=1)] = 0.2
    """A run that would remove more than this share of all sessions is refused."""


class MetricsSection(Section):
    """Where Prometheus finds the metrics; without a port and a textfile there are none."""

    port: int | None = Field(default=None, ge=0, le=65535)
    """The stream serves /metrics here while it runs; 0 takes a free one."""
    host: str = "127.0.0.1"
    textfile: str | None = None
    """Directory of node_exporter's textfile collector, for what jobs and runs with --once did."""


class LineageSection(Section):
    """Where OpenLineage events go; nowhere without a transport."""

    transport: Literal["http", "file", "client"] | None = None
    """`client` leaves it to OpenLineage's own openlineage.yml and OPENLINEAGE_... variables."""
    url: str | None = None
    endpoint: str = "api/v1/lineage"
    api_key_variable: str | None = None
    """Name of the environment variable that holds the key; the key itself has no place in a config."""
    path: str | None = None
    """File that the events are appended to, one a line."""
    namespace: str = "sessionlake"
    every: Duration = "5 minutes"
    """A stream sends what it has done since its start this often at the most."""
    listener: bool = False
    """Whether OpenLineage's Spark listener sends its events too; its jar is fetched on first use."""


def check_quality(quality: QualitySection, aggregates: Mapping[str, str]) -> None:
    """Raise a ConfigError for bounds on what is no aggregate, or that nothing can meet."""
    for name, bounds in quality.aggregates.items():
        where = f"quality.aggregates.{name}"
        if name not in aggregates:
            known = ", ".join(aggregates) or "none"
            raise ConfigError(f"{where}: {name!r} is no aggregate; write one of [aggregates] ({known})")
        named = {f"quantiles.{q}": b for q, b in bounds.quantiles.items()}
        for what, between in {"range": bounds.range, "mean": bounds.mean, **named}.items():
            if between is not None and not between[0] <= between[1]:
                raise ConfigError(f"{where}.{what}: {between} is empty; write the lower bound first")
        for quantile in bounds.quantiles:
            if not re.fullmatch(r"0(\.\d+)?|1(\.0+)?", quantile):
                raise ConfigError(
                    f"{where}.quantiles: {quantile!r} is no quantile; write a number from 0 to 1 as text, as in '0.99'"
                )


def check_observed(metrics: MetricsSection, lineage: LineageSection) -> None:
    """Raise a ConfigError for places where metrics or lineage can't go."""
    if metrics.textfile and "://" in metrics.textfile:
        raise ConfigError(f"metrics.textfile: {metrics.textfile!r} must be a local directory; write a path")
    needed = {"http": ("url", lineage.url), "file": ("path", lineage.path)}.get(lineage.transport or "")
    if needed and not needed[1]:
        raise ConfigError(f"lineage.{needed[0]}: is missing; transport {lineage.transport!r} needs it")
    if lineage.path and "://" in lineage.path:
        raise ConfigError(f"lineage.path: {lineage.path!r} must be a local file; write a path")
    if lineage.listener and lineage.transport in (None, "client"):
        raise ConfigError("lineage.transport: is missing; the listener needs 'http' or 'file'")
