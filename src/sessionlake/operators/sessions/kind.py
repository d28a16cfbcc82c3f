"""Sessions as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.columnar.arrays import Ints
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.sessions.control import TOMBSTONES
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.restate import merged_late
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.base import Source
from sessionlake.stream import watermark
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.events import aggregated_events
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.kind import State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.restating import Restating
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import SESSIONS, Changelog
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows, rows_meeting


class Sessions(EventKind[SessionizerSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = SESSIONS

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Mapping[str, str] | None) -> "Sessions":
        """Make it of a config."""
        aggregates, events = aggregated_events(config, sources[EVENTS], pinned)
        windows = SessionWindows.of(config)
        return cls(config, SessionizerSpec(windows, aggregates, events))

    def operator(self, live: Mapping[str, Any] | None = None) -> Sessionizer:
        """Return the sessionizer."""
        return Sessionizer(self.spec if live is None else self.spec.under(live))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the topic's tombstones where there is an archive, the snapshot and the changelog."""
        types, specs = self.spec.value_types, dict(self._config.aggregates)
        tombstones = TableSpec(
            schemas.TOPIC_TOMBSTONES, schemas.TOPIC_TOMBSTONES_SCHEMA, "Archive: tombstones read from the topic"
        )
        return (
            *([tombstones] if self._config.pipeline.archive else []),
            TableSpec(schemas.SESSIONS, schemas.sessions(types, specs), "Snapshot of sessions, as far as compacted"),
            changelog_table(self.changelog, schemas.changelog(types, specs)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the topic's tombstones, and the changelog."""
        tombstones, changes = tables.path(schemas.TOPIC_TOMBSTONES), schemas.changelog(self.spec.value_types, {})
        return (
            Output(TOMBSTONES, schemas.TOPIC_TOMBSTONES, tombstones, schemas.TOPIC_TOMBSTONES_SCHEMA, same_rows),
            changelog_output(self.changelog, tables, changes),
        )

    def next_state(self, state: State, stats: dict[str, int]) -> State:
        """Move the watermark."""
        return watermark.advanced(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> DataFrame:
        """Return the warm sessions."""
        return engine_rows(rows_meeting(tables, _horizon_us(operator, state)))

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: DataFrame) -> DataFrame:
        """Return the cold sessions that shards need."""
        keys = F.broadcast(asked.select(F.col("key").alias("session_key")).distinct())
        live = merged_rows(tables, narrowed=lambda rows: rows.join(keys, "session_key", "left_semi"))
        cold = live.where(F.unix_micros("session_end") < _horizon_us(operator, state))
        n = asked.alias("n")
        near = (F.unix_micros("session_end") >= F.col("n.from_us")) & (
            F.unix_micros("session_start") <= F.col("n.to_us")
        )
        return engine_rows(cold.join(n, (F.col("session_key") == F.col("n.key")) & near, "left_semi"))

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention: it decides how sessions are cut into segments and which of them are kept."""
        return str(_windows(operator).kept_us)

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
        return Restating(partial(_cells, self.spec.windows.gap_us), partial(merged_late, self.spec, alone_before_us))

    def due_us(self, state: State) -> None:
        """Return None: sessions change by events and corrections only."""

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the watermark that lies a microsecond beyond the close of the last session."""
        latest = merged_rows(tables).agg(F.max(F.unix_micros("session_end"))).head()
        if latest is None or latest[0] is None:
            return None
        return int(latest[0]) + self.spec.windows.to_close_us + 1


def engine_rows(sessions: DataFrame) -> DataFrame:
    """Return sessions as shards take them: key, start_us, end_us, event_count, revision, state."""
    return sessions.select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros("session_end").alias("end_us"),
        "event_count",
        "revision",
        "state",
    )


def _windows(operator: Operator[Any]) -> SessionWindows:
    return cast("Sessionizer", operator).spec.windows


def _horizon_us(operator: Operator[Any], state: State) -> int:
    return _windows(operator).bounds(watermark.watermark_of(state)).horizon_us


def _cells(gap_us: int, time_us: Ints) -> Ints:
    return time_us // gap_us
