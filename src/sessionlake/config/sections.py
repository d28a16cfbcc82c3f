"""Sections that every pipeline's config has, and what sections share."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sessionlake.config.durations import parse_duration
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.config.source import SourceSection


def _duration(text: str) -> str:
    try:
        parse_duration(text)
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("duration: ")) from error
    return text


def _pipeline_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", text):
        raise ValueError(f"{text!r} must be letters, digits, _ and -; write for example 'clicks'")
    return text


DURATION = AfterValidator(_duration)
Duration = Annotated[str, DURATION]


class Section(BaseModel):
    """A table of the config file: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PipelineSection(Section):
    """Where the pipeline lives and how it runs."""

    name: Annotated[str, AfterValidator(_pipeline_name)]
    warehouse: str
    shards: int = Field(default=4, ge=1, le=4096)
    trigger: Duration = "10 seconds"
    store: str = "store"
    """Local directory of the session stores: a cache, restored from Delta when lost. $VARIABLES are each executor's own."""
    code: str | None = None
    """Directory that users' classes of [aggregates] are looked for in, too, after all that is installed."""
    archive: bool = False
    """Keep every event that was not refused in the table `events`, so that a source which forgets can be read again."""

    @property
    def quiet_after_us(self) -> int:
        """How long after its last commit a stream is taken to be at work: three triggers, half a minute at least."""
        return max(3 * parse_duration(self.trigger), 30_000_000)


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
    def bound_in_time(self) -> bool:
        """Whether whole numbers of `bound_settings` are microseconds."""
        return False

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
    def harmless_us(self) -> int:
        """How far ahead of the clock an event may be, and move the watermark, without that events of now are late for it; microseconds."""
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

    def in_words(self) -> str:
        """Return what is computed, in a sentence for users."""
        raise NotImplementedError

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
