"""The section [process] of a config."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from sessionlake.config.durations import parse_duration
from sessionlake.config.fields import Duration, ResultColumns
from sessionlake.config.names import IMPORT_PATH
from sessionlake.config.sections import Facts, OperatorSection
from sessionlake.errors import ConfigError

TypeName = Literal["long", "double", "string", "boolean", "timestamp", "date"]
RESERVED_OUTPUT = frozenset(
    (
        *("op", "output_key", "output_time", "output_id", "output_date", "position", "ordinal"),
        *("revision", "emitted_at", "batch_id", "commit_id", "final"),
    )
)
"""Columns that every output has; in lower case."""


class ProcessSection(OperatorSection):
    """A user's class on the rows of each key, with state and timers."""

    RESERVED: ClassVar[frozenset[str]] = RESERVED_OUTPUT
    BESIDE: ClassVar[tuple[str, ...]] = ()
    PATIENCE: ClassVar[str] = "retention"

    processor: str = Field(alias="class")
    """Import path module:Class of a subclass of `Processor`, installed or in pipeline.code."""
    columns: Annotated[ResultColumns, Field(min_length=1)] | None = None
    """The columns that `process` is given; all of the source but key and time, as of the first batch, if none are named."""
    retention: Duration
    """How long the state of a key is kept that no row and no timer touches; how late a row may be."""
    grace: Duration = "0 seconds"
    """How far the watermark must be past a timer to fire it, if the key itself has no later row."""
    beyond_retention: Literal["dead_letter", "drop"] = "dead_letter"
    max_state_bytes: int = Field(default=1 << 20, ge=1)
    """The size of a key's state: a row that would make it larger is a dead letter."""
    output: dict[str, TypeName] = Field(min_length=1)
    """Columns of the rows that are sent, by name."""

    @property
    def own_columns(self) -> dict[str, TypeName]:
        """The columns of [process.output]."""
        return self.output

    @property
    def grace_us(self) -> int:
        """Grace."""
        return parse_duration(self.grace)

    @property
    def retention_us(self) -> int:
        """Retention."""
        return parse_duration(self.retention)

    @property
    def facts(self) -> Facts:
        """A row has one time, may be of any number of events, never changes once it is sent, and can be removed."""
        return Facts(
            shown="all", ends_inclusive=True, closes=False, never_changes=True, removes_open=True, sums_events=False
        )

    def in_words(self) -> str:
        """Return which class runs, and how long its state is kept."""
        return f"rows of the class {self.processor} over the rows of each key, with state that is kept for {self.retention}"

    def check(self) -> None:
        """Refuse a path that is none, columns that every output has, and a retention shorter than the grace."""
        if not IMPORT_PATH.fullmatch(self.processor):
            raise ConfigError(
                f"process.class: {self.processor!r} is no import path; write 'package.module:Class', for example 'shop.rules:Funnel'"
            )
        if self.retention_us == 0:
            raise ConfigError(
                f"process.retention: {self.retention!r} must be longer than zero; write for example '7 days'"
            )
        if self.retention_us < self.grace_us:
            raise ConfigError(
                f"process.retention: {self.retention!r} is shorter than process.grace, {self.grace!r}; raise it"
            )
        seen: set[str] = set()
        for name in self.output:
            if name.lower() in RESERVED_OUTPUT:
                raise ConfigError(f"process.output: {name!r} is a column of every output; choose another name")
            if name.lower() in seen:
                raise ConfigError(f"process.output: {name!r} is there twice, perhaps but for case; name one of them")
            seen.add(name.lower())

    def reads(self, side: str) -> Mapping[str, Sequence[str] | str | None]:
        """Return the columns that the class is given."""
        del side
        return {"process.columns": self.columns}

    def bound_settings(self) -> dict[str, Any]:
        """Return the class and the columns that it reads and sends."""
        return {"process.class": self.processor, "process.columns": self.columns, "process.output": dict(self.output)}

    def live_settings(self) -> dict[str, Any]:
        """Return the limit of a key's state."""
        return {"max_state_bytes": self.max_state_bytes}
