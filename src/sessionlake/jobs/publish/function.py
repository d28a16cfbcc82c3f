"""The function of [sink.python], called with the rows by which two batches differ: at least once, step by step in order (rule 335)."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.storagelevel import StorageLevel

from sessionlake.config.load import Config
from sessionlake.config.source import FUNCTION, PythonSink
from sessionlake.engine import failpoints
from sessionlake.engine.exchange import from_payload, to_payload
from sessionlake.errors import ConfigError, JobError
from sessionlake.jobs.publish.results import Results, unless_gone
from sessionlake.jobs.publish.steps import Progress, Step
from sessionlake.user_code import NOT_THEIRS, load_function, raised
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.sink_position import Position
from sessionlake.warehouse.spark_columns import columns, map_in_arrow
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import published_in
from sessionlake.warehouse.visible import lost

OP, UPSERT, DELETE = "op", "upsert", "delete"
_PAYLOAD = "payload"


@dataclass(frozen=True)
class Delivery:
    """What a call of the function is told next to the rows."""

    pipeline: str
    batch_id: int
    """The batch whose results the rows lead to."""
    after: int | None
    """The batch that the step before led to; None if these are all rows that there are, so that others are gone."""
    part: int
    """The number of the call within the step, from 0 on."""


Function = Callable[[pa.Table, Delivery], object]


@dataclass(frozen=True)
class PythonFunction:
    """The function of a pipeline's config, and the tables whose rows it gets."""

    tables: Tables
    config: Config

    @property
    def sink(self) -> PythonSink:
        """The section."""
        return python_of(self.config)

    @property
    def every(self) -> str:
        """The least time between two steps."""
        return self.sink.every

    @cached_property
    def function(self) -> Function:
        """The function itself; ConfigError if it can't be loaded."""
        return load_function("sink.python.call", self.sink.call, self.config.pipeline.code)

    def step(self, *, anew: bool = False) -> Step | None:
        """Call the function with the rows that have changed up to the last batch; None if it had them. With `anew` it gets all rows.

        A step that was begun is first made to its end, from the same batch to the same batch: a row that came and went since would be
        in no other step. JobError if the function raises. The rows come again then.
        """
        _ = self.function  # before any row is read
        last, before, progress = last_batch(self.tables), position_of(self.tables, self.config), self._progress
        if before is None or anew:
            now = Position.after(before, self.config, last, anew=anew, sink=FUNCTION)
            if before is None and self.sink.first == "none" and not anew:
                self._written(now)
                return Step(last.batch_id, 0)
            return self._all(now)
        before.require_same(self.config, self.tables, last, FUNCTION, self.sink.call)
        planned = progress.planned(before.step + 1)
        if planned is None:
            if before.seen.batch_id == last.batch_id:
                return None
            now = Position.after(before, self.config, last, sink=FUNCTION)
            planned = progress.plan(now.step, json.dumps(now.values()))
        done = self._difference(before, Position.read(json.loads(planned)), last)
        return done if done.batch_id >= last.batch_id else self.step() or done

    def _difference(self, before: Position, now: Position, last: BatchCommit) -> Step:
        """Send the rows by which two batches differ; all rows, if the tables have lost a part of what is between the two."""
        failpoints.hit("function_read")
        found = unless_gone(
            lambda: self._changed(before, now, last),
            "sink.python: changes since batch %d are gone from the tables, so all rows are sent again",
            before.seen.batch_id,
        )
        if found is None:
            return self._all(Position.after(before, self.config, last, sink=FUNCTION))
        rows, added, deleted = found
        self._send(rows, added + deleted, now, before.seen.batch_id)
        return Step(now.seen.batch_id, added, deleted)

    def _changed(self, before: Position, now: Position, last: BatchCommit) -> tuple[DataFrame, int, int]:
        """Return the rows by which two batches differ, kept by Spark, and how many are there now and are gone."""
        if now.seen.batch_id > last.batch_id or not now.seen.is_in(self.tables):
            raise lost("sink.python", self.tables)  # the tables were put back
        rows = self._results.latest(before.seen, now.seen).persist(StorageLevel.MEMORY_AND_DISK)
        return rows, *_counted(rows)

    def _all(self, now: Position) -> Step:
        """Send all rows. A step that was begun is of no use any more."""
        failpoints.hit("function_read")
        self._progress.unplan(now.step)
        rows = self._results.latest(None, now.seen).persist(StorageLevel.MEMORY_AND_DISK)
        self._send(rows, sum(_counted(rows)), now, None)
        return Step(now.seen.batch_id, None)

    def _send(self, rows: DataFrame, count: int, now: Position, after: int | None) -> None:
        """Call the function with rows, which are let go then, and record the step."""
        try:
            tables = self._tables_of(rows, count, now, with_none=after is None)
            for part, table in enumerate(tables):
                self._call(table, Delivery(self.config.pipeline.name, now.seen.batch_id, after, part))
        finally:
            rows.unpersist()
        failpoints.hit("function_called")
        self._written(now)

    def _call(self, rows: pa.Table, delivery: Delivery) -> None:
        try:
            self.function(rows, delivery)
        except NOT_THEIRS:
            raise
        except BaseException as error:
            # Its text may have a key.
            raise JobError(
                f"sink.python: {self.sink.call} raised {raised(error)}, at batch {delivery.batch_id}; correct it and start again: the step's rows come again"
            ) from error

    def _written(self, now: Position) -> None:
        self._progress.write(now.step, json.dumps(now.values()))

    @property
    def _progress(self) -> Progress:
        return _progress(self.tables, self.config)

    def _tables_of(self, rows: DataFrame, count: int, now: Position, *, with_none: bool) -> Iterator[pa.Table]:
        """Yield the rows as tables of the columns of the live view and OP, none with more rows than `max_rows`.

        One without rows is yielded only if there are no rows at all, and `with_none`.
        """
        most = self.sink.max_rows
        op = F.when(F.col(SIGN) > 0, UPSERT).otherwise(DELETE).alias(OP)
        names = columns(field.name for field in self._results.fields(now.seen))
        # A partition comes to this process as a whole.
        parted = rows.select(op, *names).repartition(-(-count // most)) if count > most else rows.select(op, *names)
        held, size = list[pa.Table](), 0
        for row in map_in_arrow(parted, _packed, f"{_PAYLOAD} binary").toLocalIterator():
            table = from_payload(pa.py_buffer(row[0]))
            while size + table.num_rows >= most:
                yield pa.concat_tables([*held, table.slice(0, most - size)])
                table, held, size = table.slice(most - size), [], 0
            if table.num_rows:
                held, size = [*held, table], size + table.num_rows
        if held:
            yield pa.concat_tables(held)
        elif with_none and not count:
            yield to_arrow_schema(parted.schema).empty_table()

    @cached_property
    def _results(self) -> Results:
        return Results(self.tables, self.config, FUNCTION)


def python_of(config: Config) -> PythonSink:
    """Return the section; ConfigError if there is none."""
    if config.sink.python is None:
        raise ConfigError("sink.python: is missing; add [sink.python] with call")
    return config.sink.python


def position_of(tables: Tables, config: Config) -> Position | None:
    """Return how far the function is; None before its first step."""
    text = _progress(tables, config).read()
    return Position.read(json.loads(text)) if text else None


def _progress(tables: Tables, config: Config) -> Progress:
    return Progress(tables, f"{published_in(config)}/{FUNCTION}")


def _counted(rows: DataFrame) -> tuple[int, int]:
    """Return how many rows are there now, and how many are gone."""
    ((added, deleted),) = rows.agg(F.count_if(F.col(SIGN) > 0), F.count_if(F.col(SIGN) < 0)).collect()
    return added, deleted


def _packed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each batch as a row of bytes."""
    for batch in batches:
        payload = to_payload(pa.Table.from_batches([batch]))
        yield pa.RecordBatch.from_arrays([pa.array([payload], pa.binary())], names=[_PAYLOAD])
