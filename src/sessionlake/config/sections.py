"""The sections [pipeline] and [event], and the base of an operator's section."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import AfterValidator, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator

from sessionlake.column_names import ELEMENT, is_element, is_within
from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.fields import ColumnName, Columns, Duration, KeyName, Section, as_columns
from sessionlake.config.lookups import LookupSection
from sessionlake.config.source import SourceSection
from sessionlake.config.store_engines import StoreEngine


def _pipeline_name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", text):
        raise ValueError(f"{text!r} must be letters, digits, _ and -; write for example 'clicks'")
    return text


OF_RESULTS = "200 milliseconds"
"""The trigger of pipelines that read nothing but results of others on a disk: they follow what is committed in front."""


class PipelineSection(Section):
    """The pipeline's name, its directories, and settings of its runs."""

    name: Annotated[str, AfterValidator(_pipeline_name)]
    warehouse: str
    shards: int = Field(default=4, ge=1, le=4096)
    trigger: Duration = "10 seconds"
    """How often the stream looks for input. A pipeline that reads nothing but results on a disk looks more often (OF_RESULTS)."""
    store: str = "store"
    """Local directory of the session stores: a cache, restored from Delta when lost. $VARIABLES are each executor's own."""
    store_engine: StoreEngine = "files"
    """What keeps the stores: sorted files, which are faster, or RocksDB. If it changes, stores are restored from the tables."""
    code: str | None = None
    """Directory that users' classes of [aggregates] are looked for in, too, after all that is installed."""
    archive: bool | Literal["all"] = False
    """Keep every accepted event in the table `events`, so that a source that drops old events can be read again. "all": keep each
    row with all its columns in the table `source_rows` too, so that it can be shaped again under any config."""

    keep_replaced: bool = False
    """Keep the rows that a batch replaces or deletes, as they were, in the table `replaced_rows`. A pipeline behind this one that
    reads changes then need not look for them."""
    batch_timeout: Duration | None = None
    """How long a batch may take before it is cancelled, and the run ends with an error; without it as long as it takes."""
    max_lag: int | None = Field(default=None, ge=1)
    """Batches that a pipeline behind or a sink may be behind: of more, a running stream takes none until it has caught up."""
    weight: int = Field(default=1, ge=1, le=100)
    """The share of the cores that the pipeline gets beside others of its project in one driver, if all have work."""

    @property
    def batch_timeout_us(self) -> int | None:
        """How long a batch may take, microseconds; None for no limit."""
        return None if self.batch_timeout is None else parse_duration(self.batch_timeout)

    @property
    def quiet_after_us(self) -> int:
        """How long after its last commit a stream is taken to be at work: three triggers, half a minute at least."""
        return max(3 * parse_duration(self.trigger), 30_000_000)


def identity_of(ids: str | list[str] | None, exploded: str | None) -> tuple[str, ...]:
    """Return the columns of an id: an element without an id of its own has its row's, and its number.

    >>> identity_of("order", "items"), identity_of("items.id", "items"), identity_of("order", None)
    (('order', '_element'), ('items.id',), ('order',))
    """
    names = as_columns(ids)
    if not names or exploded is None or ELEMENT in names:
        return names
    is_own = any(not is_element(name) and is_within(name, exploded) for name in names)
    return names if is_own else (*names, ELEMENT)


class EventSection(Section):
    """Which columns make an event."""

    key: Columns | None = None
    """One column, or several: then the key is the JSON array of their texts. May be left out with [window]: then all events have
    one key, the empty text."""
    time: KeyName | None = None
    """May be left out with windows by count: then an event's time is the clock of its batch."""
    time_unit: Literal["s", "ms", "us", "ns"] | None = None
    time_format: str | None = None
    """The format of times that are texts, in Spark's letters; without it they are ISO 8601."""
    id: Columns | None = None
    max_future_skew: Duration | None = None
    max_key_bytes: int = Field(default=65_536, ge=1)
    """An event whose key is longer, in bytes of UTF-8, is a dead letter."""
    where: str | None = None
    """SQL over the row; rows for which it is not true are no events: they are counted, and nothing else."""
    explode: ColumnName | None = None
    """A list whose elements are events, each with the other columns of its row. A row without elements is filtered."""
    explode_outer: ColumnName | None = None
    """The same, and a row without elements is an event whose element is null."""
    columns: dict[str, str] = Field(default={})
    """Computed columns: SQL by name, each of the source's columns and of those above it."""
    unique_for: Duration | None = None
    """How long an event is remembered: another one of the same key, id and time is a duplicate, and changes nothing."""
    duplicates: Literal["rows", "number"] = "rows"
    """Whether duplicates get a row in the table `duplicates`, or are only counted."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of the key; none if all events have one key."""
        return as_columns(self.key)

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns of the id; none if events have none."""
        return identity_of(self.id, self.exploded)

    @property
    def exploded(self) -> str | None:
        """The list whose elements are events; None if rows are."""
        return self.explode if self.explode is not None else self.explode_outer

    @property
    def shows_duplicates(self) -> bool:
        """Whether duplicates get a row, besides their number."""
        return self.duplicates == "rows"

    @property
    def unique_us(self) -> int | None:
        """How long an event is remembered, microseconds; None if duplicates are not looked for."""
        return None if self.unique_for is None else parse_duration(self.unique_for)


class SideSection(Protocol):
    """One of several event inputs."""

    @property
    def source(self) -> SourceSection:
        """The section of the input."""

    @property
    def event(self) -> EventSection:
        """Which columns make an event."""

    @property
    def lookup(self) -> Sequence[LookupSection]:
        """The tables from which events are enriched, in this order."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts about an operator's rows under the settings of its section, for jobs and readers."""

    shown: Literal["all", "final", "marked"] = "marked"
    """The rows of the live view: all; the final ones; or all, with a column `final` (marked)."""
    ends_inclusive: bool = False
    """Whether a row's end is in the row."""
    closes: bool = True
    """Whether rows ever become final."""
    never_changes: bool = False
    """Whether events change no row that is there. Then each row is final at once."""
    expires: bool = True
    """Whether events can come too late to be taken in."""
    removes_open: bool = False
    """Whether a tombstone also removes a row that is not final."""
    sums_events: bool = True
    """Whether each accepted event is in exactly one row. If so, the rows' event_count add up to the accepted events."""
    knows_replaced: bool = False
    """Whether shards know the rows that they replace or delete, as these were sent."""
    stores_are_rows: bool = True
    """Whether stores hold what the live view shows; if not, the query server answers from the tables."""
    rows_lag: bool = False
    """Whether a result may have changed since its row was sent. Then a row is final only if the state's tables have the same row."""
    not_final: str = ""
    """Why the shown row of a closed result may be an earlier form of a result that goes on, with the remedy; empty if it never is."""
    bound_in_time: bool = False
    """Whether whole numbers of `bound_settings` are microseconds."""
    keeps_until: bool = False
    """Whether rows have a column `open_until`, because their end does not say until when they take events."""
    quarantines: bool = False
    """Whether some rows are kept apart from the shown rows."""
    hides_us: int | None = None
    """The time after its last write at which a row expires without a change in the changelog; None if every expiry is a change."""
    tombstones_per_second: int | None = None
    """Tombstones for expired rows that the stream sends to its topic in a second, at most; None if it sends none."""


class OperatorSection(Section):
    """An operator's section; `config.operators` names them. Subclasses add the keys of their operator."""

    NOT_UNIQUE: ClassVar[str | None] = None
    """Why duplicate events can't be removed; None if they can."""
    OLD_NAMES: ClassVar[Mapping[str, str]] = {}
    """Present names of keys by earlier names. The field has both as aliases, and an earlier name gives a warning."""
    RESERVED: ClassVar[frozenset[str]] = frozenset()
    """Column names that an aggregate can't have, besides those of every operator; in lower case."""
    BESIDE: ClassVar[tuple[str, ...]] = ("aggregates",)
    """Companions: sections beside the operator's own, each a field here."""
    ALSO_KEYS: ClassVar[frozenset[str]] = frozenset()
    """Names of BESIDE that are also keys of the section itself if the value is a text. A config has the key or the section."""
    INSTEAD: ClassVar[Mapping[str, str]] = {}
    """Keys to write in place of another operator's companion, by the companion's name."""
    SIDES: ClassVar[tuple[str, ...]] = ()
    """Names of the event inputs if there are several, each a field here. Then the config has no [source] and no [event]."""

    beyond_retention: str = "dead_letter"
    """The treatment of events beyond retention."""
    aggregates: dict[str, str] = Field(default={})
    """The section [aggregates]: texts by name; always empty if BESIDE does not have it."""

    TIMED: ClassVar[bool] = True
    """Whether the config must name the events' time. Without it, an event's time is the clock of the batch."""
    KEYED: ClassVar[bool] = True
    """Whether the config must name the events' key."""
    PATIENCE: ClassVar[str] = "grace"
    """The key to raise if too many events come too late; `grace_us` is the value."""
    HAD_NO_GRACE: ClassVar[bool] = False
    """Whether the default of grace was zero once. Warehouses of that time keep zero (docs/rules.md, rule 269)."""

    CUTS: ClassVar[tuple[str, ...]] = ()
    """Keys of `bound_settings` that may change from an event time on, given by `before`."""

    _by_old_names: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _noting_old_names(cls, given: Any, make: ModelWrapValidatorHandler[Self]) -> Self:
        made = make(given)
        if isinstance(given, Mapping) and (old := tuple(name for name in cls.OLD_NAMES if name in given)):
            made._by_old_names = old  # noqa: SLF001 (a validator of the class)
        return made

    def old_names_told(self) -> Iterator[str]:
        """Yield a line for each key under an old name; the line begins with the old name."""
        for name in self._by_old_names:
            now = self.OLD_NAMES[name]
            yield f"{name}: is called {now} now; write {now}, the old name will go"

    def same_until(self, bound: Mapping[str, Any], time_us: int | None) -> bool:
        """Return whether the settings of CUTS equal `bound` for all event times up to `time_us`; None if no event has come."""
        raise NotImplementedError

    def cut_too_early(self, bound: Mapping[str, Any], reached_us: int | None, told: str) -> str | None:
        """Return a line about a new time of `before` that is already reached, as `told`; None if there is none."""
        del bound, reached_us, told
        return None

    def as_taken(self, bound: Mapping[str, Any], live: Mapping[str, Any]) -> Self:
        """Return the section of a batch with these settings. A reader's section may differ if the stream has taken a change."""
        del bound, live
        return self

    def with_grace(self, grace_us: int) -> Self:
        """Return the section with a grace, if none is written and the operator has one."""
        del grace_us
        return self

    def grace_told(self) -> str | None:
        """Return an unwritten grace in words; None if the section writes a grace, or if no event is ever late."""
        return None

    def kept_before(self, bound: Mapping[str, Any], until_us: int) -> Mapping[str, str] | None:
        """Return the keys of a section of `before` that keeps the settings `bound` for event times before `until_us`; None if none can."""
        del bound, until_us
        return None

    def before_in_words(self, bound: Sequence[Sequence[Any]]) -> str:
        """Return the part `before` of `bound_settings` in words."""
        raise NotImplementedError

    @property
    def facts(self) -> Facts:
        """The facts about the rows."""
        return Facts()

    @property
    def sides(self) -> Mapping[str, SideSection]:
        """Event inputs by name if there are several, otherwise empty."""
        return {name: getattr(self, name) for name in self.SIDES}

    @property
    def keys(self) -> Mapping[str, tuple[str, ...]]:
        """Key columns by input of `sides`."""
        return {}

    @property
    def own_columns(self) -> Collection[str]:
        """Names that users gave to columns of the rows. Key columns can't have these names, in upper or lower case."""
        return self.aggregates

    def reading(self, sources: Mapping[str, SourceSection], lookups: Mapping[str, Sequence[LookupSection]]) -> Self:
        """Return the section with other sources and lookups in `sides`."""
        del sources, lookups
        return self

    @property
    def grace_us(self) -> int:
        """How long a result changes after its end, microseconds."""
        raise NotImplementedError

    @property
    def retention_us(self) -> int:
        """How far before the watermark events are accepted, microseconds."""
        raise NotImplementedError

    @property
    def skew_us(self) -> int:
        """How far ahead of the clock events may be if the config does not say, microseconds; a minute at least."""
        return self.grace_us

    @property
    def harmless_us(self) -> int:
        """How far ahead of the clock an event may move the watermark before present events are late, microseconds."""
        return self.grace_us

    @property
    def least_unique_us(self) -> int:
        """The shortest `unique_for` with which every event in time is compared, microseconds. At most the retention."""
        return self.harmless_us

    @property
    def to_close_us(self) -> int:
        """A row is final once the watermark lies more than this beyond its end, microseconds."""
        return self.grace_us if self.facts.ends_inclusive else self.grace_us - 1

    def closed_us(self, watermark_us: int | None) -> int | None:
        """Return the time before which all rows that end are final; None before the first watermark."""
        return None if watermark_us is None else watermark_us - self.to_close_us

    def without_key(self) -> "OperatorSection":
        """Return the section for events without a key."""
        return self

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
        """How far `closing_sql` may lie after a row's end, microseconds."""
        return 0

    @property
    def reserved(self) -> frozenset[str]:
        """RESERVED, and columns that rows have under these settings."""
        return self.RESERVED | ({"open_until"} if self.facts.keeps_until else set())

    def quarantined_sql(self, micros: str) -> str | None:
        """Return SQL of the reason why a row is kept apart, null for none; None if no row ever is.

        `micros` makes whole microseconds of a time, as `unix_micros({})`.
        """
        del micros
        return None

    def further_views(self, engine: str, micros: str, every: str) -> Mapping[str, str]:
        """Return the queries of the operator's views besides the live one, by their names, in an order in which they can be made.

        `engine` is spark, duckdb or trino, `micros` as in `quarantined_sql`, `every` the view of all latest rows.
        """
        del engine, micros, every
        return {}

    def in_words(self) -> str:
        """Return a sentence about the computation, for users."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise ConfigError if values don't go together, each valid by itself."""

    def warnings(self) -> Iterator[str]:
        """Yield warnings about settings that are allowed, one line each."""
        yield from ()

    def checks(self) -> Iterator[Callable[[], None]]:
        """Yield the checks of the section and its companions. Each raises ConfigError separately, so all problems are reported."""
        yield self.check

    def check_source(self, source: SourceSection) -> None:
        """Raise ConfigError if the operator can't read such a source."""
        del source

    def check_event(self, event: EventSection) -> None:
        """Raise ConfigError if the operator can't read such events."""
        del event

    def reads(self, side: str) -> Mapping[str, Sequence[str] | str | None]:
        """Return event columns, or SQL over them, that rows depend on, by config key; without key, time, id and aggregates.

        None stands for all columns.
        """
        del side
        return {}

    def bound_settings(self) -> dict[str, Any]:
        """Return the settings to which the tables are bound, by config key; JSON values."""
        raise NotImplementedError

    def live_settings(self) -> dict[str, Any]:
        """Return this operator's settings that may change from batch to batch; JSON values."""
        return {}


class GracedSection(OperatorSection):
    """The section of an operator whose results take events for a grace after they end.

    Without a grace events change results as long as the retention allows (docs/rules.md, rule 269).
    """

    CHANGES: ClassVar[tuple[str, str]]
    """In words: the results that events change, and the end after which the grace begins."""

    grace: Duration | None = None
    """How long after its end a result takes events, for example "10 minutes"; as long as the retention allows if it is left out."""

    @property
    def default_grace_us(self) -> int:
        """The longest grace that the retention allows, microseconds."""
        raise NotImplementedError

    @property
    def grace_us(self) -> int:
        """The written grace, or the default."""
        return self.default_grace_us if self.grace is None else parse_duration(self.grace)

    def as_taken(self, bound: Mapping[str, Any], live: Mapping[str, Any]) -> Self:
        """Return the section with the batch's grace, if it writes none: the warehouse may be one that keeps zero."""
        return self.with_grace(live["grace_us"]) if "grace_us" in live else super().as_taken(bound, live)

    def with_grace(self, grace_us: int) -> Self:
        """Return the section with a grace, if none is written."""
        return self if self.grace is not None else self.model_copy(update={"grace": f"{grace_us} microseconds"})

    def grace_told(self) -> str | None:
        """Return in words the grace that follows from the retention; None if one is written."""
        if self.grace is not None:
            return None
        changed, end = self.CHANGES
        return (
            f"is not written: events change {changed} until {spoken_duration(self.default_grace_us)} after {end}, "
            "as long as the retention allows"
        )
