"""Answers from the tables, as of one batch, if the stores of this host don't have them: read by DuckDB, without a JVM."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Timer
from typing import Any

import duckdb
import pyarrow as pa
from duckdb import DuckDBPyConnection

from sessionlake.config.load import Config
from sessionlake.config.sections import OperatorSection
from sessionlake.errors import LakeError
from sessionlake.serve.database import AboutKey, open_rows
from sessionlake.serve.questions import Question
from sessionlake.serve.refusals import RefusedError
from sessionlake.serve.result_rows import OPEN, QUARANTINED
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import FOLD
from sessionlake.warehouse.dialects import DUCKDB
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import sql_text

_ATTEMPTS = 5


@dataclass(frozen=True, eq=False)
class TablesAtBatch:
    """The tables as of one batch: at versions that never move. Any number of threads may read it."""

    config: Config
    lake: Lake
    commit: BatchCommit

    def find(self, asked: Question) -> pa.Table:
        """Return the rows that are asked for, in order; RefusedError if they are not found in time."""
        of, section = self.lake.changelog, self.config.section
        given: dict[str, Any] = {"limit": asked.limit}
        where = list(_about_keys(of.key, asked))
        pushed = partial(_about_key, asked) if where else None
        if asked.from_us is not None:
            reaches = ">=" if section.facts.ends_inclusive else ">"
            where.append(f"epoch_us({of.end}) {reaches} {asked.from_us}")
        if asked.to_us is not None:
            where.append(f"epoch_us({of.start}) <= {asked.to_us}")
        if asked.after is not None:
            where.append(self._after(asked))
        direction = " desc" if asked.descending else ""
        order = ", ".join(f"{name}{direction}" for name in self._order)
        return self._rows(pushed, f"{self._shown(asked, where)} order by {order} limit $limit", given)

    def longest_open(self, limit: int) -> pa.Table:
        """Return the longest sessions that events can still lengthen, as `View.longest_open` does."""
        of, section = self.lake.changelog, self._section
        watermark = self.commit.watermark_us or 0
        # A row that is not final ended after this time: the bound spares reading files of older sessions.
        oldest = watermark - section.to_close_us - section.closes_late_us
        where = [f"not {section.final_sql(of.end, self.commit.state)}", f"epoch_us({of.end}) >= {oldest}"]
        shown = self._shown(Question(include={OPEN}), where)
        length = f"epoch_us({of.end}) - epoch_us({of.start})"
        return self._rows(None, f"{shown} order by {length} desc, {of.start}, {of.key} limit $limit", {"limit": limit})

    @property
    def _section(self) -> OperatorSection:
        return self.config.section.as_taken(self.commit.settings.rebuild, self.commit.settings.live)

    def position(self, row: dict[str, Any]) -> tuple[str | int, ...]:
        """Return the values of a row that a cursor keeps."""
        return row[self._order[0]], *(_whole(row[name]) for name in self._order[1:])

    @property
    def _order(self) -> tuple[str, ...]:
        of = self.lake.changelog
        return (of.key,) if of.one_per_key else tuple(dict.fromkeys((of.key, of.start, *of.identity)))

    def _after(self, asked: Question) -> str:
        """Return the condition of rows that come after a position; of the whole key, if its rows are not named."""
        of = self.lake.changelog
        key, *rest = asked.after or ("",)
        times = {of.start} if of.has_times else set()
        names = [f"epoch_us({name})" if name in times else name for name in self._order]
        values = [sql_text(str(key)), *map(str, rest)]
        compared = "<" if asked.descending else ">"
        return f"({', '.join(names[: len(values)])}) {compared} ({', '.join(values)})"

    def _shown(self, asked: Question, where: list[str]) -> str:
        of, section = self.lake.changelog, self._section
        view, conditions = of.live, list(where)
        if asked.include:
            view = of.every
            rule = self.config.quarantined_sql(DUCKDB.micros)
            if rule is not None and QUARANTINED not in asked.include:
                conditions.append(f"{rule} is null")
            if section.facts.shown == "final" and OPEN not in asked.include:
                conditions.append(section.final_sql(of.end, self.commit.state))
        return f"from {view}" + (f" where {' and '.join(conditions)}" if conditions else "")

    def _rows(self, pushed: AboutKey | None, query: str, given: dict[str, Any]) -> pa.Table:
        with (
            closing(open_rows(self.config, self.lake, self.commit, pushed)) as database,
            in_time(database, self.config),
        ):
            found = database.sql(f"select * {query}", params=given).to_arrow_table()
        of = self.lake.changelog
        hidden = {of.date, *of.hidden}
        return found.select([name for name in of.without_states(found.column_names) if name not in hidden])


@contextmanager
def in_time(database: DuckDBPyConnection, config: Config) -> Iterator[None]:
    """End the queries of the block after `serve.tables_timeout`; RefusedError then, LakeError if they can't be answered."""
    timer = Timer(config.serve.tables_timeout_us / 1e6, database.interrupt)
    timer.start()
    try:
        yield
    except duckdb.InterruptException as error:
        raise RefusedError(
            503,
            f"tables: the rows were not found within serve.tables_timeout = {config.serve.tables_timeout!r}; ask for fewer",
        ) from error
    except duckdb.Error as error:
        raise LakeError(
            f"tables: can't be read ({str(error).splitlines()[0]}); ask again, or look at the warehouse"
        ) from error
    finally:
        timer.cancel()


def open_tables_at_batch(config: Config) -> TablesAtBatch:
    """Return the tables as of the last batch; NoBatchesError if there is none."""
    for _ in range(_ATTEMPTS):
        lake = Lake.of(config)
        of = lake.changelog
        if lake[of.changes].exists():
            lake[of.changes].open()
        commit = last_batch(lake)
        fold = lake[of.snapshot].app_version(FOLD)
        if fold is None or fold <= commit.batch_id:
            return TablesAtBatch(config, lake, commit)
        # The snapshot was opened after a later batch had been folded into it: its rows would be of two batches.
    raise LakeError("tables: are folded faster than they can be opened; ask again")


def _about_key(asked: Question, name: str) -> str:
    """Return all conditions about the key as one."""
    return " and ".join(f"({condition})" for condition in _about_keys(name, asked))


def _about_keys(name: str, asked: Question) -> Iterator[str]:
    """Yield conditions about the key in SQL that DuckDB and DataFusion share; keys compare by their UTF-8 bytes."""
    if asked.key is not None:
        yield f"{name} = {sql_text(asked.key)}"
    if asked.keys is not None:
        yield f"{name} in ({', '.join(map(sql_text, asked.keys))})"
    if asked.low is not None:
        yield f"{name} >= {sql_text(asked.low)}"
    if asked.high is not None:
        yield f"{name} <= {sql_text(asked.high)}"
    if asked.prefix:
        yield f"starts_with({name}, {sql_text(asked.prefix)})"


def _whole(value: Any) -> int:
    """Return a time in microseconds, or a number as it is."""
    return value if isinstance(value, int) else pa.scalar(value, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
