"""Sessions as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.records import UNTIL
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.sessions.control import TOMBSTONES
from sessionlake.operators.sessions.gaps import refused_gaps
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.restate import merged_late, restates_schema
from sessionlake.operators.sessions.section import SessionSection, session_ttl_section
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.table import TOPIC_TOMBSTONES
from sessionlake.operators.sessions.ttl_rule import session_ttl
from sessionlake.operators.sessions.windows import Bounds
from sessionlake.stream.capabilities import Merge, Redeeming, Restating
from sessionlake.stream.described_kind import DescribedKind
from sessionlake.stream.kind import ALLOW_EXPIRY, Lookups, State, TableSpec
from sessionlake.stream.outputs import same_rows
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


class Sessions(DescribedKind, of=Sessionizer):
    """See `Kind` for the methods."""

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
        """Return the tombstones, which events do not give, if there is an archive or [ttl], and the tables of sessions."""
        comment = "Tombstones read from the topic, and of [ttl]"
        tombstones = TableSpec(schemas.TOPIC_TOMBSTONES, TOPIC_TOMBSTONES, comment)
        kept = self._config.pipeline.archive or self._section.ttl is not None
        return (*([tombstones] if kept else []), *super().tables())

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the topic's tombstones, and the changelogs."""
        name = schemas.TOPIC_TOMBSTONES
        return (Output(TOMBSTONES, name, tables[name].uri, TOPIC_TOMBSTONES, same_rows), *super().outputs(tables))

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Refuse a batch that takes too many sessions away."""
        ttl = cast("Sessionizer", operator).spec.ttl
        return () if ttl is None else ttl.checked(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the warm sessions."""
        of, until = self.changelogs[0], self._until(tables)
        columns = _engine_columns(tables[of.snapshot].read(), of)
        return versions_since(tables, columns, _bounds(operator, state).oldest_end_us, of=of, until=until)

    @property
    def lookups(self) -> Lookups:
        """Return the reading of the cold sessions that shards need."""
        return self._cold_sessions

    def _cold_sessions(self, tables: Tables, operator: Operator[Any], state: State, asked: "DataFrame") -> "DataFrame":
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
        return None if self.spec.emit is None else last_batch_id(tables, self.changelog)

    @property
    def restating(self) -> Restating:
        """Return the merge of events of one gap; those that may soon be beyond retention each for itself."""
        alone = partial(merged_late, self.spec, (0, 0), alone=True)
        return Restating(_event_time_us, partial(_merge, self.spec, self._config.retention_us), alone)

    @property
    def redeeming(self) -> Redeeming:
        """Return the reading of events; those with a refused gap stay out."""
        return Redeeming(self.spec.aggregates, self.spec.events, partial(refused_gaps, self.spec))

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
