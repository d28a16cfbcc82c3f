"""Sessions as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.records import UNTIL
from sessionlake.config.load import Config
from sessionlake.config.ttl import SessionTtlSection
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.sessions.control import TOMBSTONES
from sessionlake.operators.sessions.gap_by import parsed_gap, source_columns, typed_gap
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.restate import merged_late, restates_schema
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import next_state
from sessionlake.operators.sessions.ttl_rule import session_ttl
from sessionlake.operators.sessions.windows import Bounds, SessionWindows
from sessionlake.sources.base import Source
from sessionlake.stream import watermark
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.events import aggregated_events, computed_types
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.kind import ALLOW_EXPIRY, State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.restating import Restating
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import SESSIONS, Changelog
from sessionlake.warehouse.schemas import OPEN_UNTIL
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows, rows_meeting


class Sessions(EventKind[SessionizerSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = SESSIONS

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Mapping[str, str] | None) -> "Sessions":
        """Make it of a config."""
        windows = SessionWindows.of(config)
        sql = parsed_gap(windows.gap_by)
        aggregates, events = aggregated_events(config, sources[EVENTS], pinned, more=source_columns(sql))
        gap_by = typed_gap(sql, computed_types(events))
        quarantine = None if config.quarantine is None else config.quarantine.thresholds
        spec = SessionizerSpec(windows, aggregates, events, gap_by, quarantine)
        return cls(config, replace(spec, ttl=session_ttl(spec, config.ttl)))

    def operator(self, live: Mapping[str, Any] | None = None) -> Sessionizer:
        """Return the sessionizer."""
        if live is None:
            return Sessionizer(self.spec)
        ttl = live.get("ttl")
        section = None if ttl is None else SessionTtlSection.model_validate(ttl)
        made = session_ttl(self.spec, section, allowed=bool(live.get(ALLOW_EXPIRY)))
        return Sessionizer(replace(self.spec.under(live), ttl=made))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return what events don't tell of removed sessions, where there is an archive or [ttl], the snapshot and the changelog."""
        types, specs = self.spec.value_types, dict(self._config.aggregates)
        until = self.spec.windows.keeps_until
        tombstones = TableSpec(
            schemas.TOPIC_TOMBSTONES, schemas.TOPIC_TOMBSTONES_SCHEMA, "Tombstones read from the topic, and of [ttl]"
        )
        return (
            *([tombstones] if self._config.pipeline.archive or self._config.ttl is not None else []),
            TableSpec(
                schemas.SESSIONS,
                schemas.sessions(types, specs, until=until),
                "Snapshot of sessions, as far as compacted",
            ),
            changelog_table(self.changelog, schemas.changelog(types, specs, until=until)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the topic's tombstones, and the changelog."""
        tombstones, until = tables[schemas.TOPIC_TOMBSTONES].uri, self.spec.windows.keeps_until
        changes = schemas.changelog(self.spec.value_types, {}, until=until)
        return (
            Output(TOMBSTONES, schemas.TOPIC_TOMBSTONES, tombstones, schemas.TOPIC_TOMBSTONES_SCHEMA, same_rows),
            changelog_output(self.changelog, tables, changes),
        )

    def next_state(self, state: State, stats: dict[str, int]) -> State:
        """Move the watermark, and tell of cleanups."""
        return next_state(state, stats)

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Refuse a batch that takes too many sessions away."""
        ttl = cast("Sessionizer", operator).spec.ttl
        return () if ttl is None else ttl.checked(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the warm sessions."""
        return engine_rows(rows_meeting(tables, _bounds(operator, state).oldest_end_us))

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
        """Return the cold sessions that shards need."""
        keys = F.broadcast(asked.select(F.col("key").alias("session_key")).distinct())
        live = merged_rows(tables, narrowed=lambda rows: rows.join(keys, "session_key", "left_semi"))
        section, bounds = self._config.sessions, _bounds(operator, state)
        # Of what `closing_sql` gives a session is open for a gap more.
        open_until = F.expr(section.closing_sql("unix_micros({})", "session_end")) + section.gap_us
        cold = live.where(open_until < bounds.expired_us)
        n = asked.alias("n")
        near = (F.unix_micros("session_end") >= F.col("n.from_us")) & (
            F.unix_micros("session_start") <= F.col("n.to_us")
        )
        return engine_rows(cold.join(n, (F.col("session_key") == F.col("n.key")) & near, "left_semi"))

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention, which decides how sessions are cut into segments and which of them are kept, and what they have."""
        windows = _windows(operator)
        return f"{windows.kept_us} {OPEN_UNTIL}" if windows.keeps_until else str(windows.kept_us)

    def suite_values(self) -> dict[str, int | bool]:
        """Return the gap."""
        return {"gap_us": self.spec.windows.gap_us}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which events are beyond retention."""
        return SessionWindows.of(config).bounds(watermark.watermark_of(state)).expired_us

    def restated_us(self) -> Column:
        """Return the event's time."""
        return F.unix_micros("event_time")

    def restating(self, watermark_us: int) -> Restating:
        """Return the merge of events of one gap; those that may soon be beyond retention each for itself."""
        alone_before_us = watermark_us - self._config.retention_us // 2
        merge = partial(merged_late, self.spec, alone_before_us)
        return Restating(partial(_cells, self.spec.windows.gap_us), merge, restates_schema(self.spec))

    def due_us(self, state: State) -> int | None:
        """Return when the next cleanup is due that may find something; None without [ttl]."""
        return None if self.spec.ttl is None else self.spec.ttl.due_us(state)

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the watermark that lies a microsecond beyond the close of the last session."""
        section = self._config.sessions
        closing = F.expr(section.closing_sql("unix_micros({})", "session_end"))
        latest = merged_rows(tables).agg(F.max(closing)).head()
        if latest is None or latest[0] is None:
            return None
        return int(latest[0]) + section.to_close_us + 1


def engine_rows(sessions: DataFrame) -> DataFrame:
    """Return sessions as shards take them: key, start_us, end_us, event_count, revision, state, and until_us where it is kept."""
    until = [F.unix_micros(OPEN_UNTIL).alias(UNTIL)] if OPEN_UNTIL in sessions.columns else []
    return sessions.select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros("session_end").alias("end_us"),
        "event_count",
        "revision",
        "state",
        *until,
    )


def _windows(operator: Operator[Any]) -> SessionWindows:
    return cast("Sessionizer", operator).spec.windows


def _bounds(operator: Operator[Any], state: State) -> Bounds:
    return _windows(operator).bounds(watermark.watermark_of(state))


def _cells(gap_us: int, time_us: Ints) -> Ints:
    return time_us // gap_us
