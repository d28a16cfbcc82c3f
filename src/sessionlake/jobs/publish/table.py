"""The table of [sink.delta], which equals the results as of a batch: each step to a later batch is one transaction (rule 330).

A step writes only the rows that differ. The table's own commit names the batch, so that there is no file beside it that could say
something else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField
from pyspark.storagelevel import StorageLevel

from sessionlake.config.load import Config
from sessionlake.config.source import TABLE, DeltaSink
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, FencedError
from sessionlake.jobs.publish.results import LEAST_SIGN, Results, unless_gone
from sessionlake.jobs.publish.steps import Step
from sessionlake.jobs.publish.versions import CLOSES, FROM, TO, Versions
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import SIGN, Changelog
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.replacement import Replacement
from sessionlake.warehouse.sink_position import HISTORY, STEPS, Position, newest_position, position_of, sink_of
from sessionlake.warehouse.spark_columns import UNNAMABLE, column, columns, unnamable
from sessionlake.warehouse.tables import Table, Tables
from sessionlake.warehouse.views import bound_us, whole

_ATTEMPTS = 10
_FILE_ROWS = 1_000_000
_REWRITE_FROM = 0.05
_CHANGES = "sink_changes"
_MERGE = """
merge into {table} t using {changes} s on {same}
when matched and s.{sign} < 0 then delete
when matched then update set {pairs}
when not matched and s.{sign} > 0 then insert ({names}) values ({values})
"""
_MERGE_VERSIONS = """
merge into {table} t using {changes} s on {same} and t.{ended} is null and s.{closes}
when matched and s.{begun} <= t.{begun} then delete
when matched then update set t.{ended} = s.{begun}
when not matched and not s.{closes} then insert ({names}) values ({values})
"""


@dataclass(frozen=True)
class _Target:
    """The table's files that may hold a changed row, and a change of the files that begins with the table as it is now."""

    change: Replacement
    files: list[str]
    rows: int
    """The number of rows in the files, at most."""


@dataclass(frozen=True)
class Difference:
    """The last change of each row: SIGN is 1 for a row that is there now, -1 for a row that is gone."""

    rows: DataFrame
    added: int
    gone: int
    """The number of rows that are gone; the table may never have had them."""
    exact: bool
    """Whether the rows were looked for in the earlier results."""
    are_new: bool
    """Whether it is known that the table has none of the rows."""
    span: tuple[int, int] | None
    """The least and the greatest start among the rows, if a row is known by its start."""


class Way(Enum):
    """The ways to write a difference."""

    APPEND = "add the rows"
    COMPARE = "look first whether all rows are new"
    MERGE = "Delta's MERGE"
    REWRITE = "write the files again that may hold a changed row"


def way_of(difference: Difference, stored: int, sink: DeltaSink) -> Way:
    """Choose the cheapest way to write a difference into files of `stored` rows that may hold changed rows.

    Measured, seconds of CPU (docs/decisions/0048):

    | changed | rows in files | REWRITE | MERGE |
    | --- | --- | --- | --- |
    | 100,000 | 2,000,000 | 5.1 | 7.8 |
    | 1,000 | 500,000 | 2.7 | 4.7 |

    A MERGE is expected to win if there are several files, and few changed rows, so that most files may hold none. The
    search in the earlier results costs more than the rest of a step, so it pays only if the result may be an APPEND.
    """
    if difference.are_new:
        return Way.APPEND
    is_sparse = stored > _FILE_ROWS and difference.added + difference.gone < _REWRITE_FROM * stored
    if is_sparse and not (difference.exact or difference.gone):
        return Way.COMPARE
    # A rewrite puts all rows of the files into the change feed, and deletion vectors are asked for so that files stay.
    if is_sparse or sink.change_feed or sink.deletion_vectors:
        return Way.MERGE
    return Way.REWRITE


@dataclass(frozen=True)
class SinkTable:
    """The table of a pipeline's config, and the tables that it is computed of."""

    tables: Tables
    config: Config

    @property
    def sink(self) -> DeltaSink:
        """The section."""
        return sink_of(self.config)

    @property
    def every(self) -> str:
        """The least time between two steps."""
        return self.sink.every

    @cached_property
    def table(self) -> Table:
        """The table itself, which need not be there."""
        return Table(self.tables, self.sink.path)

    def step(self, *, anew: bool = False) -> Step | None:
        """Bring the table to the last batch, in one transaction; None if it is there.

        With `anew` all rows are replaced. If another process does the same meanwhile, one of both takes effect.
        """
        done: list[Step | None] = []
        self.table.retried(_ATTEMPTS, lambda: done.append(self._stepped(anew=anew)))
        return done[-1]

    def _stepped(self, *, anew: bool) -> Step | None:
        last = last_batch(self.tables)
        before = position_of(self.table, self.config)
        if before is None:
            return self._load(Position.after(None, self.config, last))
        if anew:
            self._set_properties()
            now = Position.after(before, self.config, last, anew=True)
            keeps = self.sink.history and before.rows == HISTORY
            return self._replay(None, now) if keeps else self._load(now, anew=True)
        before.require(self.config, self.tables, self.table, last)
        if before.seen.batch_id == last.batch_id:
            return None
        self._set_properties()
        now = Position.after(before, self.config, last)
        return self._replay(before, now) if self.sink.history else self._update(before, now)

    def _update(self, before: Position, now: Position) -> Step | None:
        """Write the rows that differ between two batches; all rows, if the tables no longer have all changes in between."""
        difference = self._difference(before, now, exact=self._adds_rows)
        if difference is None:
            return self._load(now)
        self._grow(now)
        target = None if difference.are_new else self._target(difference)
        stored = 0 if target is None else target.rows
        if way_of(difference, stored, self.sink) is Way.COMPARE:
            difference.rows.unpersist()
            difference = self._difference(before, now, exact=True)
            if difference is None:
                return self._load(now)
        try:
            return self._write(difference, target, now)
        finally:
            difference.rows.unpersist()

    @property
    def _adds_rows(self) -> bool:
        """Whether differences are mostly new rows: then the search in the earlier results pays."""
        return self.config.is_final(TABLE) or self.config.section.facts.never_changes

    def _load(self, now: Position, *, anew: bool = False) -> Step | None:
        """Replace all rows and columns by the current rows and columns."""
        failpoints.hit("sink_read")
        rows = self._versions.all(now.seen) if self.sink.history else self._results.signed(None, now.seen)
        of, rows = self.tables.changelog, rows.select(*self._columns(now))
        if of.start in of.identity:  # in an order by which a step can leave files out
            rows = rows.repartitionByRange(of.start).sortWithinPartitions(of.start)
        if refused := unnamable(rows.columns):
            raise ConfigError(f"sink.delta: {UNNAMABLE.format(refused)}")
        options = {"maxRecordsPerFile": _FILE_ROWS, "userMetadata": user_metadata(now.metadata())}
        self.table.overwrite(rows, {**self._properties, **_transaction(now), **options})
        failpoints.hit("sunk")
        return Step(now.seen.batch_id, None) if self._was_made(now, anew=anew) else None

    def _replay(self, before: Position | None, now: Position) -> Step | None:
        """Write the versions since a position, close the versions that ended, and write the new position, in one transaction.

        Without `before`, or if changes in between are gone, write versions of all rows that differ from the version in the table.
        """
        self._grow(now)
        failpoints.hit("sink_read")
        table = self.table.read()
        found = None if before is None else self._known(before, now, table)
        rows, made, closed = found or _counted(self._versions.unlike(now.seen, table))
        try:
            if closed:
                self._merge_versions(rows, now)
            else:
                self.table.append(rows.select(*self._columns(now)), STEPS, now.step, now.metadata())
        finally:
            rows.unpersist()
        failpoints.hit("sunk")
        return Step(now.seen.batch_id, made, closed) if self._was_made(now, anew=before is None) else None

    def _known(self, before: Position, now: Position, table: DataFrame) -> tuple[DataFrame, int, int] | None:
        """Return the rows of `Versions.after`, counted; None if the tables no longer have all changes in between."""
        return unless_gone(
            lambda: _counted(self._versions.after(before.seen, now.seen, table)),
            "sink.delta: changes since batch %d are gone from the tables, so versions in between are missing",
            before.seen.batch_id,
        )

    def _merge_versions(self, rows: DataFrame, now: Position) -> None:
        rows.createOrReplaceTempView(_CHANGES)
        names = [SPARK.named(field.name) for field in self._fields(now)]
        statement = _MERGE_VERSIONS.format(
            table=self.table.sql_name(),
            changes=_CHANGES,
            same=" and ".join(f"t.{name} = s.{name}" for name in self.tables.changelog.identity),
            closes=CLOSES,
            begun=FROM,
            ended=TO,
            names=", ".join(names),
            values=", ".join(f"s.{name}" for name in names),
        )
        self._run(statement, now)

    def _run(self, statement: str, now: Position) -> DataFrame:
        """Run a MERGE as the transaction of a step."""
        # MERGE has no writer options: its transaction and metadata are settings of the session.
        settings = {f"spark.databricks.delta.write.{key}": value for key, value in _transaction(now).items()}
        with self.tables.settings({**settings, USER_METADATA: user_metadata(now.metadata())}):
            return self.tables.spark.sql(statement)

    def _was_made(self, now: Position, *, anew: bool = False) -> bool:
        """True if the step was made here; False if another process made a step that leads as far, FencedError if that step leads less far.

        Delta keeps quiet about the second of two steps with the same number, and that step changes nothing. With `anew` no other process's step is enough.
        """
        found = newest_position(self.table)
        if found is not None and found.attempt == now.attempt:
            return True
        if found is None or anew or found.seen.batch_id < now.seen.batch_id:
            raise FencedError(f"sink.delta: another process has made step {now.step} of {self.table.uri!r}")
        return False

    def _difference(self, before: Position, now: Position, *, exact: bool) -> Difference | None:
        """Return the rows that differ; None if the tables no longer have all changes between the two positions.

        Only if the difference is `exact`, it is known whether the rows were there before.
        """
        of = self.tables.changelog
        by_start = of.start in of.identity

        def read() -> Difference:
            rows = (self._results.latest if exact else self._results.last)(before.seen, now.seen)
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
            counts = [F.count_if(F.col(SIGN) == sign) for sign in (1, -1)]
            least = F.min(LEAST_SIGN if exact else F.lit(-1))
            start = whole(of, of.start) if by_start else F.lit(None)
            ((added, gone, least_sign, low, high),) = rows.agg(*counts, least, F.min(start), F.max(start)).collect()
            span = (low, high) if by_start and low is not None else None
            return Difference(rows, added, gone, exact, least_sign != -1, span)

        return unless_gone(
            read,
            "sink.delta: changes since batch %d are gone from the tables, so all rows are loaded again",
            before.seen.batch_id,
        )

    def _target(self, difference: Difference) -> _Target:
        """Return the files that may hold a row of a difference, as they are now."""
        change = self.table.replacement()
        files = change.holding(_may_hold(self.tables.changelog, difference.span))
        stored = sum(_FILE_ROWS if rows is None else rows for rows in files.values())
        return _Target(change, list(files), stored)

    def _write(self, difference: Difference, target: _Target | None, now: Position) -> Step | None:
        """Write the rows, and the position, in one transaction."""
        failpoints.hit("sink_read")
        deleted = 0
        way = way_of(difference, 0 if target is None else target.rows, self.sink)
        if target is None or way is Way.APPEND:
            self.table.append(self._put(difference, now), STEPS, now.step, now.metadata())
        elif way is Way.MERGE:
            deleted = self._merge(difference, now)
        else:
            deleted = self._rewrite(difference, target, now)
        failpoints.hit("sunk")
        return Step(now.seen.batch_id, difference.added, deleted) if self._was_made(now) else None

    def _put(self, difference: Difference, now: Position) -> DataFrame:
        return difference.rows.where(F.col(SIGN) == 1).select(*self._columns(now))

    def _rewrite(self, difference: Difference, target: _Target, now: Position) -> int:
        """Replace the files that may hold a changed row, with half of a MERGE's work; return the number of deletes."""
        change, files, identity = target.change, target.files, list(self.tables.changelog.identity)
        # Delta looks only at commits after the start of the transaction: these are the earlier commits.
        last = newest_position(self.table)
        if last is None or last.step >= now.step:
            return 0
        if self.table.foreign_change(last.version) is not None:
            raise FencedError(f"sink.delta: somebody else has changed rows of {self.table.uri!r}, so it is read again")
        rows, deleted = self._put(difference, now), 0
        if files:
            there = change.read(files)
            if difference.gone:
                gone = difference.rows.where(F.col(SIGN) == -1).select(*identity)
                deleted = there.select(*identity).join(gone, identity, "left_semi").count()
            kept = there.join(difference.rows.select(*identity), identity, "left_anti")
            rows = kept.select(*columns(there.columns)).unionByName(rows, allowMissingColumns=True)
        written = change.write(rows)
        failpoints.hit("sink_written")
        change.commit(written, files, now.metadata(), app=(STEPS, now.step), changes_data=True)
        return deleted

    def _merge(self, difference: Difference, now: Position) -> int:
        """Replace changed rows, add new rows, and delete rows that are taken back; return the number of deletes."""
        of = self.tables.changelog
        difference.rows.createOrReplaceTempView(_CHANGES)
        same = [f"t.{name} = s.{name}" for name in of.identity]
        if difference.span is not None:
            # Literals, so that files which can't have a changed row are left out.
            low, high = (f"timestamp_micros({n})" if of.has_times else str(n) for n in difference.span)
            same.append(f"t.{of.start} between {low} and {high}")
        names = [SPARK.named(name) for name in self._names(now)]
        statement = _MERGE.format(
            table=self.table.sql_name(),
            changes=_CHANGES,
            sign=SIGN,
            same=" and ".join(same),
            pairs=", ".join(f"t.{name} = s.{name}" for name in names),
            names=", ".join(names),
            values=", ".join(f"s.{name}" for name in names),
        )
        return sum(row.num_deleted_rows for row in self._run(statement, now).collect())

    def _grow(self, now: Position) -> None:
        """Add the columns that the table lacks."""
        there = {*self.table.read().columns}
        lacking = [field for field in self._fields(now) if field.name not in there]
        try:
            self.table.add_columns(lacking)
        except Exception:
            # Delta refuses the second of two who add a column, which is as good.
            if not {field.name for field in lacking} <= {*self.table.read().columns}:
                raise

    @property
    def _properties(self) -> dict[str, str]:
        sink = self.sink
        asked = {"enableChangeDataFeed": sink.change_feed, "enableDeletionVectors": sink.deletion_vectors}
        return {f"delta.{name}": str(value).lower() for name, value in asked.items()}

    def _set_properties(self) -> None:
        """Give the table, which is there, the properties that the config asks for."""
        name = self.table.sql_name()
        there = {row.key: row.value for row in self.tables.spark.sql(f"show tblproperties {name}").collect()}
        new = [f"'{key}' = '{value}'" for key, value in self._properties.items() if there.get(key, "false") != value]
        if new:
            self.tables.spark.sql(f"alter table {name} set tblproperties ({', '.join(new)})")

    @cached_property
    def _results(self) -> Results:
        return Results(self.tables, self.config, TABLE)

    @cached_property
    def _versions(self) -> Versions:
        return Versions(self.tables, self._results)

    def _names(self, now: Position) -> list[str]:
        return [field.name for field in self._results.fields(now.seen)]

    def _columns(self, now: Position) -> list[Column]:
        """Return the columns with their comments."""
        return [column(f.name).alias(f.name, metadata=f.metadata) for f in self._fields(now)]

    def _fields(self, now: Position) -> list[StructField]:
        return self._versions.fields(now.seen) if self.sink.history else self._results.fields(now.seen)


def _may_hold(of: Changelog, span: tuple[int, int] | None) -> Column:
    """Return the condition of a file, by its statistics, that may have a row whose start lies in a span."""
    if span is None:
        return F.lit(True)
    ends = ("min", "max")
    if of.has_times:
        least, most = (bound_us(end, of.start) for end in ends)
    else:
        least, most = (F.get_json_object("stats", f"$.{end}Values.{of.start}") for end in ends)
    meets = (least.cast("bigint") <= span[1]) & (most.cast("bigint") >= span[0])
    return F.coalesce(meets, F.lit(True))


def _counted(rows: DataFrame) -> tuple[DataFrame, int, int]:
    """Return rows of `Versions`, kept by Spark, and how many are versions and how many close a version."""
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        ((made, closed),) = kept.agg(F.count_if(~F.col(CLOSES)), F.count_if(CLOSES)).collect()
    except BaseException:
        kept.unpersist()
        raise
    return kept, made, closed


def _transaction(now: Position) -> Mapping[str, str]:
    return {"txnAppId": STEPS, "txnVersion": str(now.step)}
