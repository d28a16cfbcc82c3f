"""Test the operator of any config in milliseconds, without Spark: a pipeline's own TOML file, over rows of a test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from sessionlake.column_names import ELEMENT
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator, counts_of
from sessionlake.errors import ConfigError
from sessionlake.local.columns import names_in, type_of
from sessionlake.local.rows import Datetimes, Row, event_rows, micros_of, plain_rows
from sessionlake.local.source import Lookups, local_config, local_operator, local_tables
from sessionlake.local.stream import LocalBatch
from sessionlake.local.tables import LocalTables
from sessionlake.sources.decoding.rows import Origin, Rows
from sessionlake.sources.record_columns import NO_VALUE, OFFSET, PARTITION
from sessionlake.stream.event_operator import EventOperator
from sessionlake.stream.ingest import DEAD, judge
from sessionlake.stream.outputs import LATE
from sessionlake.stream.unique.events import unique_secret
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.stream.wrapped import inner
from sessionlake.testing.local import OperatorHarness
from sessionlake.warehouse.changelog import Changelog, changelog_of
from sessionlake.warehouse.schemas import PARTLY
from sessionlake.warehouse.schemas import corrections as corrections_schema

Inputs = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class ConfigOutput:
    """The outputs of one micro-batch; see `Harness`."""

    changes: list[dict[str, Any]]
    """The rows of the changelog without states and the marks of the batch; times in microseconds, or as datetimes if rows have those."""
    late: list[dict[str, Any]]
    """The input rows that were late; not those that are in some windows and late for others."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    stale: list[dict[str, Any]]
    """`correction_id` and `reason` of the corrections that were refused, or that named a row which is gone."""
    counts: dict[str, int]


class Harness(OperatorHarness[Operator[Any], LocalTables]):
    """Run micro-batches of plain rows through the operator of a config: a file, or its content without [pipeline].

    Rows are dicts with the columns that the config names. An `offset`, a `partition` and `deleted` are a Kafka record's.
    With `event.explode` a row is an event: it has an element in place of the list, and may have the element's number, `_element`.
    If the source is the results of another pipeline, `taken_back` of `process` has rows that it takes back.
    Column types are those of the first batch's first values, or `schema` = {"column": "long" | "double" | "string" |
    "boolean" | "timestamp" | "date"}. Times of rows may be datetimes, whatever `event.time_unit` is; without a zone they are of UTC.
    From then on the times of changes are such datetimes, too.

    The clock of a batch, which `max_future_skew` and periods go by, is the newest event time so far, unless it is given.

    >>> config = {
    ...     "source": {"kind": "files", "path": "clicks", "format": "json"},
    ...     "event": {"key": "user", "time": "at", "time_unit": "us"},
    ...     "session": {"gap": "30 seconds"},
    ...     "aggregates": {"clicks": "count()"},
    ... }
    >>> output = Harness(config).process([{"user": "ann", "at": 0}, {"user": "ann", "at": 20_000_000}])
    >>> [(row["session_start"], row["session_end"], row["clicks"]) for row in output.changes]
    [(0, 20000000, 2)]
    >>> from datetime import datetime
    >>> (row,) = Harness(config).process([{"user": "ann", "at": datetime(2026, 1, 31, 12)}]).changes
    >>> row["session_start"]
    datetime.datetime(2026, 1, 31, 12, 0)
    """

    last: ConfigOutput
    """The outputs of the last micro-batch; empty before the first."""

    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | Path,
        *,
        schema: Mapping[str, str] | None = None,
        shards: int = 1,
        lookups: Lookups | None = None,
    ) -> None:
        """Raise ConfigError for an invalid config; `lookups` are the rows to look up, by the name of the lookup."""
        self._lookups, self._secret = lookups, unique_secret(None)
        self._config = local_config(config)
        self._of = changelog_of(self._config)
        self.last = ConfigOutput([], [], [], [], {})
        self._calls = 0
        self._clock_us = 0
        self._datetimes: Datetimes | None = None
        super().__init__(local_tables(self._config), shards, schema=schema, engine=self._config.pipeline.store_engine)

    def process(
        self,
        rows: Sequence[Row] | Inputs,
        clock_us: int | datetime | None = None,
        *,
        corrections: Sequence[Row] = (),
        taken_back: Sequence[Row] | Inputs = (),
    ) -> ConfigOutput:
        """Run one micro-batch: rows of the one input, or by input, and rows of the table of corrections.

        `clock_us` is the time of the clock; without one it is the newest event time so far, or the last time that was given.
        `taken_back` has, like `rows`, those that the pipeline in front, or the table, takes back: as they were, with all columns
        that are read. ConfigError if their source takes no rows back.
        """
        added, back = self._by_input(rows), self._by_input(taken_back)
        given = {name: [*added.get(name, ()), *back.get(name, ())] for name in {**added, **back}}
        if self._operator is None:
            types = {name: self._types(some) for name, some in given.items()}
            self._operator = local_operator(self._config, types, self._lookups, self._secret)
        chunks = [
            (name, chunk) for name, some in given.items() for chunk in self._chunks(name, some, len(back.get(name, ())))
        ]
        ids = [{"correction_id": f"{number:012d}", **row} for number, row in enumerate(corrections)]
        table = pa.Table.from_pylist(ids, schema=corrections_schema(ids=True)) if ids else None
        if self._datetimes is None:
            self._datetimes = Datetimes.of(row for some in given.values() for row in some)
        if clock_us is None:
            newest = [at for name, rows in chunks if (at := newest_us(self._build(), name, rows)) is not None]
            clock_us = max([self._clock_us, *newest])
        return self._told(self._batch(self._at(clock_us), chunks, corrections=table), given)

    def tick(self, clock_us: int | datetime, *, flush: bool = False) -> ConfigOutput:
        """Run a micro-batch without rows; `flush` sends all that waits for a period, as the end of a finite run does."""
        return self._told(self._ticked(self._at(clock_us), flush=flush), {})

    def advance(self, watermark_us: int | datetime, clock_us: int | datetime | None = None) -> ConfigOutput:
        """Run a micro-batch that moves the watermark, as `sessionlake run --drain` does; without a `clock_us` at the clock's last time."""
        at = self._at(self._clock_us if clock_us is None else clock_us)
        return self._told(self._advanced(micros_of(watermark_us), at), {})

    def _at(self, clock_us: int | datetime) -> int:
        """Set the clock, and return its time."""
        self._clock_us = micros_of(clock_us)
        return self._clock_us

    def _told(self, batch: LocalBatch, given: Inputs) -> ConfigOutput:
        self.last = _output(batch, given, self._of, self._datetimes)
        return self.last

    def _make_operator(self, rows: Sequence[Row]) -> Operator[Any]:
        return local_operator(
            self._config, dict.fromkeys(self._config.inputs, self._types(rows)), self._lookups, self._secret
        )

    def _types(self, rows: Sequence[Row]) -> dict[str, pa.DataType]:
        return {name: type_of(name, rows) for name in names_in(rows)} | self._declared

    def _by_input(self, rows: Sequence[Row] | Inputs) -> Inputs:
        return rows if isinstance(rows, Mapping) else {next(iter(self._config.inputs)): rows}

    def _chunks(self, name: str, rows: Sequence[Row], taken_back: int) -> list[Rows]:
        """Return rows by source partition, in their order; the last ones, so many, are taken back."""
        columns, source = self._build().columns(name), self._config.inputs[name].source
        signed, added = source.entry.is_pipeline or source.takes_back, len(rows) - taken_back
        if taken_back and not signed:
            raise ConfigError(
                f"taken_back: only kind = 'results' and 'change_feed' take rows back, and {source.AT} has {source.kind!r}"
            )
        self._calls += 1
        records = [
            (
                at,
                {
                    # As `sources.changes.with_places` numbers changes.
                    OFFSET: row.get("offset", 2 * self._calls + (at < added) if source.takes_back else None),
                    PARTITION: row.get("partition", 0),
                    NO_VALUE: row.get("deleted", False),
                    # A row is an event, and has an element in place of the list.
                    ELEMENT: 0,
                    **row,
                },
            )
            for at, row in enumerate(rows)
        ]
        found = []
        for partition in sorted({row[PARTITION] for _, row in records}):
            some = [(at, row) for at, row in records if row[PARTITION] == partition]
            made = event_rows(columns, some, Origin(partition, (0, 0, 0)))
            # Rows of another pipeline have signs, whatever they are: no clock judges them.
            signs = np.where(np.array([at for at, _ in some]) < added, 1, -1)
            found.append(replace(made, sign=signs) if signed else made)
        return found


def newest_us(operator: Operator[Any], name: str, rows: Rows) -> int | None:
    """Return the newest event time among rows of an input, whatever else is wrong with them; None if there is none."""
    spec = cast("EventOperator", inner(operator)).events(name)
    if spec.columns.time is None:
        return None
    rows, _ = spec.lookups.added(rows, {})
    checked = judge(spec, rows, 0, NO_WATERMARK).checked
    times = checked.time_us[~checked.no_time]
    return int(times.max()) if len(times) else None


def _output(batch: LocalBatch, given: Inputs, of: Changelog, datetimes: Datetimes | None) -> ConfigOutput:
    def plain(table: pa.Table) -> list[dict[str, Any]]:
        rows = plain_rows(table, of)
        return rows if datetimes is None else datetimes.shown(rows, table)

    def named(row: Row) -> dict[str, Any]:
        name = row.get("side") or next(iter(given))
        return {**given[name][int(row["source"])], **({"side": name} if row.get("side") else {})}

    late = [row for table in batch.tables(LATE) for row in table.to_pylist() if not row.get(PARTLY)]
    dead = [row for table in batch.tables(DEAD) for row in table.to_pylist()]
    return ConfigOutput(
        [row for result in batch.results for row in plain(result.changes)],
        [named(row) for row in late],
        [{**named(row), "reason": row["reason"]} for row in dead if row["kind"] == "event"],
        [{"correction_id": row["source"], "reason": row["reason"]} for row in dead if row["kind"] != "event"],
        counts_of(batch.stats),
    )
