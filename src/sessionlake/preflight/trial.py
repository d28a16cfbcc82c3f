"""All events of a place through a pipeline's own operator in this process: the latest results, and counts of all rows. Nothing is kept."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sessionlake.config.durations import parse_duration
from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.config.sections import OperatorSection
from sessionlake.engine.operator import Operator, add_stats
from sessionlake.errors import SessionlakeError, SourceError
from sessionlake.local.shards import LocalShards
from sessionlake.local.stream import LocalBatch, LocalStream
from sessionlake.preflight.sources import UnsampledError, decoded_files, sources_without_spark
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.causes import by_cause, causes_of
from sessionlake.stream.control import MAX_ADVANCE, MAX_FLUSH
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.outputs import keyed_rows
from sessionlake.stream.unique import once
from sessionlake.stream.watermark import watermark_of
from sessionlake.stream.wrapped import inner
from sessionlake.warehouse.changelog import Changelog, changelog_of
from sessionlake.warehouse.dialects import DUCKDB

LATEST = 10
"""Results that are shown."""
_BATCH_ROWS, _BATCH_BYTES = 100_000, 64 << 20
"""A batch ends with the rows that reach one of the two: more would cost memory, fewer time."""
_GRACE, _END_US, _RETENTION = "36500 days", parse_duration("36800 days"), "100000 days"
"""No event is late, all windows end and close with the last batch, and all events are within retention."""
_OF_CHANGES = ("op", "batch_id", "revision", "trigger", "emitted_at", "at_event", "written_at", "inserted_at", "cause")
"""Columns that say nothing about a result."""
_DUCKDB_MEMORY = "256MB"
_COUNTS = ("accepted", "dead", "filtered", "duplicate", "late")


@dataclass
class Trial:
    """The outcome."""

    events: int = 0
    """All rows that were read."""
    counts: dict[str, int] = field(default_factory=dict)
    """The rows by outcome, accepted and dead ones first; they add up to `events`."""
    causes: dict[str, int] = field(default_factory=dict)
    """Dead rows by cause, the commonest first."""
    examples: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By cause the reason and the place of one such row."""
    results: int = 0
    latest: pa.Table = field(default_factory=lambda: pa.table({}))
    """The latest results, the newest first."""


def try_all(config: Config, files: Sequence[str] | None) -> Generator[Trial, None, None]:
    """Yield the outcome so far after each batch, and at last the whole with the latest results; `files` are those to read, None for a table's rows.

    No event is late, as in `sessionlake bootstrap`. Memory depends on the size of a batch and the number of results, not on that of
    events: stores and results are in a temporary directory, which is removed when the iteration ends or is closed.
    """
    with ExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory(prefix="sessionlake-")))
        patient = _patient(config)
        sources = sources_without_spark(patient)
        (name,) = patient.inputs
        operator: Operator[Any] = once(named(patient.entry.operator)(patient, sources, None), patient.inputs, "")
        spec: Any = inner(operator)
        decoder = spec.events(name).decoder
        source: Any = sources[name]
        parts = _readable(source.first_rows(decoder, None) if files is None else decoded_files(decoder, files))
        stream: LocalStream[Any] = LocalStream(LocalShards(1, lambda of, shard: of.open_store(root / str(shard))))
        stack.callback(stream.close)
        changes = stack.enter_context(_Changes(root / "changes.parquet", changelog_of(config)))
        trial, stats = Trial(), dict[str, int]()
        for rows in _batches(parts):
            batch = stream.run(operator, time.time_ns() // 1000, [(name, some) for some in rows])
            add_stats(stats, batch.stats)
            trial.events += sum(some.table.num_rows + some.ignored for some in rows)
            trial.counts = {of: stats.get(of, 0) for of in _COUNTS if of in _COUNTS[:2] or stats.get(of)}
            if sum(trial.counts.values()) != trial.events:
                raise SessionlakeError(
                    f"try: {trial.events:,} rows were read, and the counts {trial.counts} do not add up to them"
                )
            trial.causes = by_cause(stats)
            _keep_examples(trial, batch)
            changes.add(batch)
            yield trial
        if trial.counts.get("accepted"):
            # Windows that are not over yet are results, too.
            end: dict[str, int] = {MAX_FLUSH: 1, MAX_ADVANCE: watermark_of(stream.state) + _END_US}
            changes.add(stream.run(operator, time.time_ns() // 1000, counted=end))
        trial.results, trial.latest = changes.latest()
        yield trial


def _readable(parts: Iterator[Rows]) -> Iterator[Rows]:
    try:
        yield from parts
    except UnsampledError as error:
        raise SourceError(f"try: {error}") from error


def _batches(parts: Iterator[Rows]) -> Iterator[list[Rows]]:
    batch: list[Rows] = []
    rows = size = 0
    for part in parts:
        batch.append(part)
        rows, size = rows + part.table.num_rows, size + part.table.nbytes
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, rows, size = [], 0, 0
    if batch:
        yield batch


def _keep_examples(trial: Trial, batch: LocalBatch) -> None:
    """Take a row of each cause that has none yet."""
    for table in batch.tables(DEAD):
        causes = causes_of(table["reason"].combine_chunks())
        for cause in causes.unique().to_pylist():
            if cause not in trial.examples:
                at = pc.index(causes, cause).as_py()
                trial.examples[cause] = (table["reason"][at].as_py(), table["source"][at].as_py() or "")


class _Changes:
    """The results' changes, in a file: the latest of each result counts."""

    def __init__(self, path: Path, of: Changelog) -> None:
        self._path, self._of, self._batches = path, of, 0
        self._writer: pq.ParquetWriter | None = None
        self._names: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def add(self, batch: LocalBatch) -> None:
        """Append a batch's changes."""
        for result in batch.results:
            if result.changes.num_rows:
                rows = result.changes.select(self._of.without_states(result.changes.column_names))
                rows = keyed_rows(rows, self._of.key, self._of.key_columns)
                rows = rows.append_column("batch_id", pa.repeat(self._batches, rows.num_rows))
                self._names = rows.column_names
                self._writer = self._writer or pq.ParquetWriter(self._path, rows.schema)
                self._writer.write_table(rows)
        self._batches += 1

    def latest(self) -> tuple[int, pa.Table]:
        """Return the number of results, and the latest ones."""
        self._close()
        if not self._names:
            return 0, pa.table({})
        of = self._of
        shown = [name for name in self._names if name not in {*_OF_CHANGES, of.id, *of.hidden}]
        with duckdb.connect(
            config={"memory_limit": _DUCKDB_MEMORY, "temp_directory": str(self._path.parent)}
        ) as database:
            database.execute(f"create view changes as select * from read_parquet({DUCKDB.text(str(self._path))})")
            database.execute("create view stored as from changes where false")
            live = of.live_sql(DUCKDB, shown, snapshot="stored", changelog="changes")
            order = ", ".join(f"{DUCKDB.named(name)} desc" for name in (of.aged_by, of.start, of.key))
            ((number,),) = database.execute(f"select count(*) from ({live})").fetchall()
            rows = database.sql(f"from ({live}) order by {order} limit {LATEST}").to_arrow_table()
        return int(number), rows

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _patient(config: Config) -> Config:
    """Return a config for which no event is late or beyond retention. How far ahead of the clock an event may be stays as it is."""
    section, skew = config.section, f"{config.max_future_skew_us} microseconds"
    longer = {"grace": _GRACE, "retention": _RETENTION}
    known = {name: text for name, text in longer.items() if name in type(section).model_fields}
    patient: OperatorSection = section.model_copy(update=known)
    event = config.event.model_copy(update={"max_future_skew": skew})
    return config.model_copy(update={"section": patient, "event": event})
