"""The table of [sink.postgres], which equals the results as of a batch: each step to a later batch is one transaction (rule 331).

Tasks copy the rows of a step into a table of its own, side by side. One transaction of the driver then moves them, with the
position. So a step is there whole or not at all, whatever is killed, and the rows never pass through the driver.
"""
# ruff: noqa: S608 (names of tables that the config has checked, and columns that are quoted)

import json
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from sessionlake.config.load import Config
from sessionlake.config.source import DATABASE, PostgresSink
from sessionlake.engine import failpoints
from sessionlake.errors import FencedError, UnreachableError
from sessionlake.jobs.publish.copying import Columns
from sessionlake.jobs.publish.results import Results, is_gone
from sessionlake.jobs.publish.steps import Step
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.database_position import connected, position_in, positions_of, postgres_of, schema_of, url_of
from sessionlake.warehouse.sink_position import Position
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.visible import CHANGED_IN

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_STEP, _KEPT_S = "sessionlake_step", 86_400
"""The prefix of the steps' tables, and the seconds after which a table that a crash left is dropped."""
_log = logging.getLogger("sessionlake")


@dataclass(frozen=True)
class PostgresTable:
    """The table of a pipeline's config, and the tables that it is computed of."""

    tables: Tables
    config: Config

    @property
    def sink(self) -> PostgresSink:
        """The section."""
        return postgres_of(self.config)

    @property
    def every(self) -> str:
        """The least time between two steps."""
        return self.sink.every

    def step(self, *, anew: bool = False) -> Step | None:
        """Bring the table to the last batch, in one transaction; None if it is there.

        With `anew` all rows are replaced. If another process does the same meanwhile, one of both takes effect.
        UnreachableError if the database does not answer, JobError for its other errors.
        """
        last = last_batch(self.tables)
        with connected(self.sink) as connection:
            before = position_in(connection, self.config)
        if before is not None and not anew:
            before.require_same(self.config, self.tables, last, DATABASE, self.sink.table)
            if before.seen.batch_id == last.batch_id:
                return None
        now = Position.after(before, self.config, last, anew=anew, sink=DATABASE)
        if before is not None and not anew:
            try:
                return self._write(self._results.signed(before.seen, now.seen), before, now, whole=False)
            except Exception as error:
                if not is_gone(error):
                    raise
            _log.warning(
                "sink.postgres: changes since batch %d are gone from the tables, so all rows are loaded again",
                before.seen.batch_id,
            )
        return self._write(self._results.signed(None, now.seen), before, now, whole=True)

    @property
    def _results(self) -> Results:
        return Results(self.tables, self.config, DATABASE)

    def _write(self, rows: DataFrame, before: Position | None, now: Position, *, whole: bool) -> Step | None:
        """Copy rows to a table of the step, then move rows and position in one transaction; `whole` says that these are all rows."""
        failpoints.hit("database_read")
        columns = Columns(self._results.fields(now.seen), self.tables.changelog.identity)
        step = f"{schema_of(self.sink)}{_STEP}_{int(time.time())}_{uuid.uuid4().hex[:12]}"
        try:
            with connected(self.sink) as connection:
                _drop_old(connection)
                connection.execute(
                    f"create unlogged table {step} ({', '.join([*columns.declared, f'{SIGN} integer, {CHANGED_IN} bigint'])})"
                )
                connection.commit()
                with _of_workers():
                    _, refused = columns.copied(rows, url_of(self.sink), step)
                failpoints.hit("database_copied")
                made = self._moved(connection, columns, step, before, now, whole=whole)
                failpoints.hit("database_moved")
        finally:
            with suppress(UnreachableError), connected(self.sink) as connection:
                connection.execute(f"drop table if exists {step}")
        failpoints.hit("database_done")
        if refused:
            _log.warning(
                "sink.postgres: %d rows are left out, because PostgreSQL can't store them: a text has a zero byte, or a key is longer than 2,000 bytes",
                refused,
            )
        return made

    def _moved(
        self,
        connection: "Connection",
        columns: Columns,
        step: str,
        before: Position | None,
        now: Position,
        *,
        whole: bool,
    ) -> Step | None:
        """Move the rows, and write the position, in the connection's transaction; None if another process has led the table as far meanwhile."""
        table, positions = self.sink.table, positions_of(self.sink)
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"sessionlake {table}"])
        found = position_in(connection, self.config)
        if found != before:
            if found is not None and found.seen.batch_id >= now.seen.batch_id:
                return None
            raise FencedError(f"sink.postgres: another process has made a step of {table!r}; keep only one running")
        names, key = ", ".join(columns.names), ", ".join(columns.key)
        connection.execute(f"create table if not exists {table} ({', '.join(columns.declared)}, primary key ({key}))")
        # Not `add column if not exists`: it would wait for all readers, even if the column is there.
        attributes = (
            "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped"
        )
        there = {row[0] for row in connection.execute(attributes, [table])}
        for field, declared in zip(columns.fields, columns.declared, strict=True):
            if field.name not in there:
                connection.execute(f"alter table {table} add column {declared}")
        # A task that was tried again has copied its rows twice, and a row may have changed in several batches.
        last = f"select distinct on ({key}) * from {step} order by {key}, {CHANGED_IN} desc, {SIGN} desc"
        deleted = 0
        if whole:
            connection.execute(f"truncate {table}")
        else:
            same = " and ".join(f"t.{name} = s.{name}" for name in columns.key)
            deleted = connection.execute(
                f"delete from {table} t using ({last}) s where s.{SIGN} < 0 and {same}"
            ).rowcount
        new = ", ".join(f"{name} = excluded.{name}" for name in columns.names)
        added = connection.execute(
            f"insert into {table} ({names}) select {names} from ({last}) s where {SIGN} > 0 "
            f"on conflict ({key}) do update set {new}"
        ).rowcount
        connection.execute(
            f"create table if not exists {positions} (table_name text primary key, batch_id bigint, position jsonb)"
        )
        connection.execute(
            f"insert into {positions} values (%s, %s, %s) "
            "on conflict (table_name) do update set batch_id = excluded.batch_id, position = excluded.position",
            [table, now.seen.batch_id, json.dumps(now.values())],
        )
        return Step(now.seen.batch_id, None if whole else added, deleted)


@contextmanager
def _of_workers() -> Iterator[None]:
    """Raise the database errors of tasks as the driver's errors."""
    import psycopg  # noqa: PLC0415 (an extra)

    try:
        yield
    except Exception as error:
        text = str(error)
        if "psycopg" not in text:
            raise
        line = next((one for one in text.splitlines() if one.startswith("psycopg.")), text)
        kind = (
            psycopg.OperationalError if "OperationalError" in line or "AdminShutdown" in line else psycopg.DatabaseError
        )
        raise kind(line) from error


def _drop_old(connection: "Connection") -> None:
    """Drop the tables of steps that crashes have left."""
    names = connection.execute(
        "select format('%%I.%%I', schemaname, tablename), tablename from pg_tables where tablename like %s",
        [f"{_STEP}\\_%"],
    ).fetchall()
    for full, name in names:
        made = name.split("_")[2]
        if made.isdigit() and int(made) < time.time() - _KEPT_S:
            connection.execute(f"drop table if exists {full}")


def rows_with(config: Config, column: str, keys: Sequence[str]) -> int:
    """Count the table's rows whose column has any of some keys; 0 if there is no table."""
    sink = postgres_of(config)
    with connected(sink) as connection:
        if position_in(connection, config) is None:
            return 0
        row = connection.execute(f'select count(*) from {sink.table} where "{column}" = any(%s)', [[*keys]]).fetchone()
        return 0 if row is None else int(row[0])
