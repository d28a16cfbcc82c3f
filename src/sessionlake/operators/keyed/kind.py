"""Keyed tables as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.aggregates.scalars import state_type
from sessionlake.columnar.expressions import Expression
from sessionlake.columnar.spark_sql import Parsed
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.errors import ConfigError, JobError
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.section import TableSection, check_columns
from sessionlake.operators.keyed.spec import (
    EVENT_TIME,
    KEY,
    KeyedSpec,
    Progress,
    changes_schema,
    next_state,
    snapshot_schema,
    stored_schema,
)
from sessionlake.operators.keyed.ttl import hidden_us
from sessionlake.operators.keyed.ttl_section import TtlSection
from sessionlake.sources.base import Source
from sessionlake.sources.record_columns import META, NO_VALUE, OFFSET, PARTITION
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.events import event_spec
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.kind import ALLOW_EXPIRY, State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.restating import Restating
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import DELETED, TABLE, WRITTEN, Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

_NOT_LATE = (
    "table: an update is never late, so that there is nothing to restate; those beyond retention are in dead_letters"
)


class KeyedTable(EventKind[KeyedSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = TABLE

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Mapping[str, str] | None) -> "KeyedTable":
        """Make it of a config."""
        section, source, condition = cast("TableSection", config.section), sources[EVENTS], None
        columns = tuple(section.columns or _all_columns(config, source, pinned))
        parsed = section.condition
        read = () if parsed is None else _columns_of(parsed, source, pinned)
        places = (OFFSET, PARTITION, NO_VALUE) if config.source.kind == "kafka" else ()
        events = event_spec(config, source, (*columns, *read, *places), pinned)
        types = events.decoder.columns.types
        for name in columns:
            _check_type(name, types[name])
        if parsed is not None:
            condition = _typed(parsed, types)
        spec = KeyedSpec(events, columns, section.retention_us, section.by_offset, condition)
        ttl = None if section.ttl is None else section.ttl.made(spec.types, config.pipeline.shards)
        return cls(config, replace(spec, ttl=ttl))

    def operator(self, live: Mapping[str, Any] | None = None) -> TableKeeper:
        """Return the workers' half."""
        if live is None:
            return TableKeeper(self.spec)
        ttl = live.get("ttl")
        shards, allowed = self._config.pipeline.shards, bool(live.get(ALLOW_EXPIRY))
        made = None if ttl is None else TtlSection.model_validate(ttl).made(self.spec.types, shards, allowed=allowed)
        return TableKeeper(replace(self.spec.under(live), ttl=made))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the snapshot and the changelog."""
        comment = f"Snapshot of {TABLE.snapshot}, as far as compacted, and deletions"
        return (
            TableSpec(TABLE.snapshot, snapshot_schema(self.spec), comment),
            changelog_table(TABLE, changes_schema(self.spec, marks=True)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the changelog."""
        return (changelog_output(TABLE, tables, changes_schema(self.spec, marks=True), rows=same_rows),)

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return nothing: the config's own settings say all."""
        return {}

    def next_state(self, state: State, stats: dict[str, int]) -> State:
        """Return how far the table is after a batch with these numbers."""
        return next_state(self.spec.retention_us, state, stats)

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Refuse a batch that takes too many rows away."""
        ttl = cast("TableKeeper", operator).spec.ttl
        return () if ttl is None else ttl.checked(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the rows, and the deletions that something can still meet."""
        spec = cast("TableKeeper", operator).spec
        rows = merged_rows(tables, deleted=True)
        time_us = F.unix_micros(EVENT_TIME)
        remembered = F.lit(False) if spec.by_offset else time_us >= Progress.of(state).horizon_us
        known = {
            "key": F.col(TABLE.key),
            "time_us": time_us,
            **{
                n: F.col(f"event_{n}") if spec.has_offsets else F.lit(0).cast("bigint") for n in ("offset", "partition")
            },
            "revision": F.col("revision"),
            **{f"{name}_us": F.coalesce(F.unix_micros(f"{name}_at"), F.lit(0)) for name in ("written", "inserted")},
            "id": F.col("event_id") if spec.has_ids else F.lit(""),
            "deleted": F.col(DELETED),
            **{f"column_{i}": F.col(_quoted(name)) for i, name in enumerate(spec.columns)},
        }
        return rows.where(~F.col(DELETED) | remembered).select(
            *(known[name].alias(name) for name in stored_schema(spec).names)
        )

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
        """Raise NotImplementedError: shards ask for nothing."""
        raise NotImplementedError

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return how markers are cut into segments, how columns are packed, and what the index of rows is by."""
        spec = cast("TableKeeper", operator).spec
        index = None if spec.ttl is None else spec.ttl.pattern.layout
        return f"{spec.retention_us}/{STATE_LAYOUT}{f'/{index}' if index else ''}"

    def suite_values(self) -> dict[str, int | bool]:
        """Return whether deletions are remembered."""
        return {"by_offset": self.spec.by_offset}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which updates are beyond retention."""
        del config
        return Progress.of(state).expired_us

    @classmethod
    def unneeded(cls, config: Config, state: State) -> dict[str, str]:
        """Return the snapshot's deletions that nothing can meet any more, and its hidden rows."""
        horizon, hidden = Progress.of(state).horizon_us, hidden_us(state)
        over = [f"not {DELETED} and {WRITTEN} <= timestamp_micros({hidden})"] if hidden != NO_WATERMARK else []
        if cast("TableSection", config.section).by_offset:
            over.append(DELETED)
        elif horizon != NO_WATERMARK:
            over.append(f"{DELETED} and {EVENT_TIME} < timestamp_micros({horizon})")
        return {TABLE.snapshot: " or ".join(f"({some})" for some in over)} if over else {}

    def restated_us(self) -> Column:
        """Raise JobError: nothing is late."""
        raise JobError(_NOT_LATE)

    def restating(self, watermark_us: int) -> Restating:
        """Raise JobError: nothing is late."""
        del watermark_us
        raise JobError(_NOT_LATE)

    def due_us(self, state: State) -> int | None:
        """Return when the next cleanup is due that may find something."""
        return None if self.spec.ttl is None else self.spec.ttl.due_us(state)

    def closing_watermark(self, tables: Tables) -> None:
        """Return None: no row ever closes."""
        del tables


def _all_columns(config: Config, source: Source, pinned: Mapping[str, str] | None) -> list[str]:
    """Return the source's columns but those of [event]: as the first batch had them."""
    own = (config.event.key, config.event.time, config.event.id, *META)
    columns = [name for name in (source.columns() if pinned is None else pinned) if name not in own]
    check_columns(columns)
    return columns


def _columns_of(parsed: Parsed, source: Source, pinned: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the columns of the source that an expression reads: key and event_time are not, unless it has such."""
    derived = [name for name in parsed.columns if name in (KEY, EVENT_TIME)]
    own = set(source.columns() if derived and pinned is None else pinned or ())
    return tuple(name for name in parsed.columns if name not in derived or name in own)


def _typed(parsed: Parsed, types: Mapping[str, pa.DataType]) -> Expression:
    found: Expression = parsed.typed({KEY: pa.string(), EVENT_TIME: schemas.TIME, **types}, "boolean")
    if found.uses_clock:
        raise ConfigError(
            f"{parsed.setting}: {parsed.text!r} reads the clock, and when an event comes must not decide what it does; "
            "compare with a column"
        )
    return found


def _check_type(name: str, type_: pa.DataType) -> None:
    try:
        state_type(type_, name)
    except ConfigError as error:
        raise ConfigError(
            f"table.columns: {name!r} is of type {type_}, which a row can't hold; cast it in the source, or name the columns without it"
        ) from error


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
