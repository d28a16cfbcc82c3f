"""The sections [table] and [ttl] of a config."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from sessionlake.column_names import titles_of
from sessionlake.config.durations import parse_duration
from sessionlake.config.fields import Duration, ResultColumns
from sessionlake.config.sections import EventSection, Facts, OperatorSection
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.ttl_section import AnyTtl
from sessionlake.sources.record_columns import KEY as RECORD_KEY

if TYPE_CHECKING:
    from sessionlake.columnar.spark_sql import Parsed

DAY = "1 day"
RESERVED = frozenset(
    (
        *("op", "table_key", "event_time", "event_partition", "event_offset", "event_id"),
        *("revision", "cause", "deleted", "table_part"),
        *("expires_at", "written_at", "inserted_at", "batch_id", "commit_id", "final"),
    )
)
"""Columns of the tables, which none of the source's may be called as; in lower case."""


class TableSection(OperatorSection):
    """A keyed table: the latest row of each key."""

    RESERVED: ClassVar[frozenset[str]] = RESERVED
    BESIDE: ClassVar[tuple[str, ...]] = ("ttl",)
    PATIENCE: ClassVar[str] = "retention"
    NOT_UNIQUE: ClassVar[str | None] = "is not for [table], in which the same update again changes nothing"

    columns: ResultColumns | None = Field(default=None, min_length=1)
    """The columns of a row; all of the source but those of [event], as of the first batch, if none are given."""
    order: Literal["time", "offset"] = "time"
    """The order of two updates of a key: by their times, or by their offsets in a topic."""
    retention: Duration | None = None
    """With order = "time": how late an update may be if there are deletions, and how long these are remembered; a day."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    delete_when: str | None = None
    """SQL over the event, true for events that delete their key; for example "status = 'cancelled'"."""

    ttl: AnyTtl | None = None
    """When rows expire; never if it is left out."""

    @property
    def own_columns(self) -> list[str]:
        """The columns, if they are named."""
        return [*titles_of(self.columns or ())]

    @property
    def by_offset(self) -> bool:
        """Whether the greatest offset holds."""
        return self.order == "offset"

    @property
    def condition(self) -> "Parsed | None":
        """The parsed condition of events that delete their key; ConfigError for invalid SQL."""
        if self.delete_when is None:
            return None
        from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

        return parse("table.delete_when", self.delete_when)

    @property
    def grace_us(self) -> int:
        """The retention: until it is over, no update is refused for its time."""
        return self.retention_us

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention or DAY)

    @property
    def skew_us(self) -> int:
        """A minute: one event ahead of its time refuses no others."""
        return 0

    @property
    def facts(self) -> Facts:
        """A row is of one event, is never final, and can always be removed. [ttl] says if rows expire without a change."""
        return Facts(
            shown="all",
            ends_inclusive=True,
            closes=False,
            removes_open=True,
            sums_events=False,
            knows_replaced=self.ttl is None or self.ttl.hides_us is None,
            hides_us=None if self.ttl is None else self.ttl.hides_us,
            tombstones_per_second=None if self.ttl is None else self.ttl.tombstones_per_second,
        )

    def in_words(self) -> str:
        """Return in words which row of a key is kept, for how long, and which events delete it."""
        latest = "greatest offset" if self.by_offset else "latest time"
        deleted = f"; an event with {self.delete_when!r} deletes its key" if self.delete_when else ""
        expires = f"; rows expire by pattern {self.ttl.pattern!r}" if self.ttl else "; rows never expire"
        return f"a table with the row of the {latest} of each key{deleted}{expires}"

    def check(self) -> None:
        """Refuse names of the tables' own columns, SQL that is none, and settings without a meaning."""
        check_columns(self.own_columns)
        if self.by_offset and self.retention is not None:
            raise ConfigError(
                "table.retention: goes with order = 'time', since by offset nothing comes too late; remove it"
            )
        if self.retention_us == 0:
            raise ConfigError(
                f"table.retention: {self.retention!r} must be longer than zero; write for example '1 day'"
            )
        _ = self.condition
        if self.ttl is not None:
            self.ttl.check()

    def check_source(self, source: SourceSection) -> None:
        """Refuse offsets if there are none, and tombstones for a topic that is none or that does not read them."""
        if self.by_offset and not source.has_offsets:
            raise ConfigError(
                f"table.order: 'offset' goes with records of Kafka and with rows that are taken back, and source.kind is {source.kind!r}; write 'time'"
            )
        if source.envelope is not None and not self.by_offset:
            raise ConfigError("table.order: changes of rows hold in the order of the topic; write order = 'offset'")
        if source.takes_back and not self.by_offset:
            raise ConfigError(
                f"table.order: rows of {source.place!r} hold in the order of its changes; write order = 'offset'"
            )
        if self.facts.tombstones_per_second is not None:
            if not source.entry.has_topic:
                raise ConfigError(
                    f"ttl.topic_tombstones: goes with source.kind 'kafka', and this is {source.kind!r}; remove it"
                )
            if not source.tombstones:
                raise ConfigError(
                    "ttl.topic_tombstones: needs source.tombstones, because the stream reads its own tombstones and would take them for deletes of newer rows; write `tombstones = true` in [source]"
                )

    def check_event(self, event: EventSection) -> None:
        """Refuse keys that the pattern of expiry can't read, and tombstones for a topic whose records may have other keys than the rows."""
        if self.ttl is not None:
            self.ttl.check_event(event)
        if self.facts.tombstones_per_second is not None and event.key != RECORD_KEY:
            raise ConfigError(
                f"ttl.topic_tombstones: are records with the rows' keys, and event.key is {event.key!r}; write event.key = '{RECORD_KEY}', or remove it"
            )

    def reads(self, side: str) -> Mapping[str, Sequence[str] | str | None]:
        """Return the columns of rows, and the SQL of deletes."""
        del side
        return {"table.columns": self.columns, "table.delete_when": self.delete_when or ""}

    def bound_settings(self) -> dict[str, Any]:
        """Return the settings that decide which rows there are, and which columns they have."""
        return {"table.order": self.order, "table.columns": self.columns, "table.delete_when": self.delete_when}

    def live_settings(self) -> dict[str, Any]:
        """Return the settings of [ttl]."""
        return {} if self.ttl is None else {"ttl": self.ttl.settings()}


def check_columns(names: Sequence[str]) -> None:
    """Raise ConfigError for columns named like the tables' own, or like one another (upper and lower case are equal)."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in RESERVED:
            raise ConfigError(
                f"table.columns: {name!r} is a column of every table; rename it in the source, or name the columns without it"
            )
        if name.lower() in seen:
            raise ConfigError(
                f"table.columns: {name!r} is there twice, perhaps in upper and lower case; name one of them"
            )
        seen.add(name.lower())
