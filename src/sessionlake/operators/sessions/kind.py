"""Sessions as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.records import UNTIL
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.sessions import schemas as session_schemas
from sessionlake.operators.sessions.changelog import SESSIONS, STORED
from sessionlake.operators.sessions.control import TOMBSTONES
from sessionlake.operators.sessions.factory import operator_of
from sessionlake.operators.sessions.gaps import refused_gaps
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.restate import merged_late, restates_schema
from sessionlake.operators.sessions.rows import STATE
from sessionlake.operators.sessions.section import SessionSection, session_ttl_section
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl_rule import session_ttl
from sessionlake.operators.sessions.windows import Bounds, SessionWindows, bounds_after
from sessionlake.operators.shared.windowing import emission
from sessionlake.sources.base import Source
from sessionlake.stream.capabilities import Merge, Redeeming, Restating
from sessionlake.stream.event_kind import EventKind
from sessionlake.stream.kind import ALLOW_EXPIRY, State, TableSpec, changelog_output, changelog_table
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse import schemas
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import last_batch_id
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.schemas import OPEN_UNTIL
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import versions_since
from sessionlake.warehouse.views import merged_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


class Sessions(EventKind[SessionizerSpec]):
    """See `Kind` for the methods."""

    changelog: ClassVar[Changelog] = SESSIONS

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return them by the config's section."""
        return (SESSIONS,) if cast("SessionSection", config.section).policies is None else (STORED, SESSIONS)

    @classmethod
    def make(cls, config: Config, sources: Mapping[str, Source], pinned: Pinned | None) -> "Sessions":
        """Make it of a config."""
        return cls(config, operator_of(config, sources, pinned).spec)

    @property
    def _section(self) -> SessionSection:
        return cast("SessionSection", self._config.section)

    def operator(self, live: Mapping[str, Any] | None = None) -> Sessionizer:
        """Return the sessionizer."""
        if live is None:
            return Sessionizer(self.spec)
        ttl = live.get("ttl")
        section = None if ttl is None else session_ttl_section(ttl)
        made = session_ttl(self.spec, section, allowed=bool(live.get(ALLOW_EXPIRY)))
        return Sessionizer(replace(self.spec.under(live), ttl=made))

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the tables: the tombstones, which events do not give, if there is an archive or [ttl]; the snapshot and the changelog."""
        types, specs = self.spec.value_types, dict(self._config.aggregates)
        until, sent = self.spec.windows.keeps_until, self.spec.emit is not None
        tombstones = TableSpec(
            schemas.TOPIC_TOMBSTONES, session_schemas.TOPIC_TOMBSTONES, "Tombstones read from the topic, and of [ttl]"
        )
        stored = (
            TableSpec(
                STORED.snapshot,
                session_schemas.stored_snapshot(until=until),
                "Snapshot of the stored sessions, as far as compacted",
            ),
            changelog_table(STORED, session_schemas.stored_changelog(until=until)),
        )
        return (
            *([tombstones] if self._config.pipeline.archive or self._section.ttl is not None else []),
            *(stored if sent else ()),
            TableSpec(
                SESSIONS.snapshot,
                session_schemas.snapshot(types, specs, until=until, sent=sent),
                "Snapshot of sessions, as far as compacted",
            ),
            changelog_table(self.changelog, session_schemas.changelog(types, specs, until=until, sent=sent)),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the topic's tombstones, and the changelogs, that of sessions last."""
        tombstones, until = tables[schemas.TOPIC_TOMBSTONES].uri, self.spec.windows.keeps_until
        sent = self.spec.emit is not None
        changes = session_schemas.changelog(self.spec.value_types, {}, until=until, sent=sent)
        stored = session_schemas.stored_changelog(until=until)
        return (
            Output(TOMBSTONES, schemas.TOPIC_TOMBSTONES, tombstones, session_schemas.TOPIC_TOMBSTONES, same_rows),
            *([changelog_output(STORED, tables, stored, STATE)] if sent else []),
            changelog_output(self.changelog, tables, changes),
        )

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Refuse a batch that takes too many sessions away."""
        ttl = cast("Sessionizer", operator).spec.ttl
        return () if ttl is None else ttl.checked(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the warm sessions."""
        of, until = self.changelogs[0], self._until(tables)
        columns = _engine_columns(tables[of.snapshot].read(), of)
        return versions_since(tables, columns, _bounds(operator, state).oldest_end_us, of=of, until=until)

    def lookups(self, tables: Tables, operator: Operator[Any], state: State, asked: "DataFrame") -> "DataFrame":
        """Return the cold sessions that shards need."""
        of = self.changelogs[0]
        keys = F.broadcast(asked.select(F.col("key").alias(of.key)).distinct())
        until = self._until(tables)
        live = merged_rows(tables, of=of, until=until, narrowed=lambda rows: rows.join(keys, of.key, "left_semi"))
        section, bounds = self._section, _bounds(operator, state)
        # `closing_sql` gives the end. A session is open for the gap of the earliest times more.
        open_until = F.expr(section.closing_sql("unix_micros({})", of.end)) + section.base_us
        cold = live.where(open_until < bounds.expired_us)
        n = asked.alias("n")
        near = (F.unix_micros(of.end) >= F.col("n.from_us")) & (F.unix_micros(of.start) <= F.col("n.to_us"))
        return engine_rows(cold.join(n, (F.col(of.key) == F.col("n.key")) & near, "left_semi"), of)

    def _until(self, tables: Tables) -> int | None:
        """Return the last batch if the state is in tables of its own, which are committed before the sessions'."""
        return None if self.spec.emit is None else last_batch_id(tables, SESSIONS)

    def store_layout(self, operator: Operator[Any]) -> str:
        """Return the retention, which decides how sessions are cut into segments and which are kept, their fields, and the policies and gaps of earlier times, on which lists depend."""
        spec = cast("Sessionizer", operator).spec
        kept = f"{spec.windows.kept_us} {OPEN_UNTIL}" if spec.windows.keeps_until else str(spec.windows.kept_us)
        emit = spec.emit
        if emit is None:
            return kept
        windows = spec.windows
        limits = [*map(astuple, windows.before), (windows.gap_us, windows.max_length_us, windows.offset_us)]
        return f"{kept}/{emit.early}/{emit.full}/{emit.late}{f'/{limits}' if windows.before else ''}"

    def suite_values(self) -> dict[str, int | bool]:
        """Return the gap, and whether rows carry states."""
        return {"gap_us": self._section.base_us, "with_state": self.spec.emit is None}

    @classmethod
    def expired_us(cls, config: Config, state: State) -> int:
        """Return the time before which events are beyond retention."""
        by_policy = cast("SessionSection", config.section).policies is not None
        return bounds_after(SessionWindows.of(config), state, by_policy=by_policy).expired_us

    @property
    def restating(self) -> Restating:
        """Return the merge of events of one gap; those that may soon be beyond retention each for itself."""
        alone = partial(merged_late, self.spec, (0, 0), alone=True)
        return Restating(_event_time_us, partial(_merge, self.spec, self._config.retention_us), alone)

    @property
    def redeeming(self) -> Redeeming:
        """Return the reading of events; those with a refused gap stay out."""
        return Redeeming(self.spec.aggregates, self.spec.events, partial(refused_gaps, self.spec))

    def due_us(self, state: State) -> int | None:
        """Return when the next cleanup is due that may find something, or the next period that has something to send."""
        cleanup = None if self.spec.ttl is None else self.spec.ttl.due_us(state)
        tick = None if self.spec.emit is None else emission.due_us(self.spec.emit, state)
        return min((at for at in (cleanup, tick) if at is not None), default=None)

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the watermark that lies a microsecond beyond the close of the last session."""
        section, of = self._section, self.changelogs[0]
        closing = F.expr(section.closing_sql("unix_micros({})", of.end))
        latest = merged_rows(tables, of=of).agg(F.max(closing)).head()
        if latest is None or latest[0] is None:
            return None
        return int(latest[0]) + section.to_close_us + 1


def engine_rows(sessions: "DataFrame", of: Changelog) -> "DataFrame":
    """Return rows of a changelog as shards take sessions: key, start_us, end_us, event_count, revision, state, and until_us if it is kept."""
    return sessions.select(*_engine_columns(sessions, of))


def _engine_columns(sessions: "DataFrame", of: Changelog) -> "list[Column]":
    until = [F.unix_micros(OPEN_UNTIL).alias(UNTIL)] if OPEN_UNTIL in sessions.columns else []
    return [
        F.col(of.key).alias("key"),
        F.unix_micros(of.start).alias("start_us"),
        F.unix_micros(of.end).alias("end_us"),
        *map(F.col, ("event_count", "revision", "state")),
        *until,
    ]


def _bounds(operator: Operator[Any], state: State) -> Bounds:
    return cast("Sessionizer", operator).spec.bounds(state)


def _event_time_us() -> "Column":
    return F.unix_micros("event_time")


def _merge(spec: SessionizerSpec, retention_us: int, watermark_us: int) -> Merge:
    merge = partial(merged_late, spec, (watermark_us - retention_us // 2, watermark_us))
    return Merge(partial(_cells, spec.windows.gap_us), merge, restates_schema(spec))


def _cells(gap_us: int, time_us: Ints) -> Ints:
    return time_us // gap_us
