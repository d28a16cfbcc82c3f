"""The inputs of each batch: source positions, clock, watermark before it, settings. Jobs that read events again need them.

Spark's checkpoint forgets positions after 100 batches, and Delta's log forgets commits after a month. The table keeps them.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.stream.computed import columns_then, with_columns
from sessionlake.stream.planned_offsets import clock_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import batches_after, last_batch
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches

BATCH_INPUTS = "batch_inputs"
_COUNTED = {
    "input": "that came in",
    "accepted": "that were accepted",
    "late": "past grace",
    "dead": "that were refused",
    "dropped": "beyond retention, and dropped",
    "filtered": "for which `where` is not true",
    "duplicate": "that came before",
}
_SAVE_AFTER = 40
"""Unsaved batches at which they are saved: well below the 100 whose positions Spark keeps."""


def _field(name: str, type_: pa.DataType, comment: str) -> pa.Field:
    return pa.field(name, type_, metadata={"comment": comment})


BATCH_INPUTS_SCHEMA = pa.schema(
    [
        _field("batch_id", pa.int64(), "Micro-batch"),
        _field("changelog_version", pa.int64(), "Version of session_changelog that the batch's commit made"),
        _field("clock", schemas.TIME, "The batch's clock, by which events are too far in the future"),
        _field("watermark_before", schemas.TIME, "Watermark that decided about the batch; null before the first event"),
        _field("watermark", schemas.TIME, "Watermark after the batch"),
        _field("settings", pa.string(), "JSON: settings of classification that held for the batch"),
        _field(
            "events",
            pa.string(),
            "JSON: position in the event source up to which the batch read, inclusive; of several, a list",
        ),
        _field("corrections", pa.string(), "JSON: position in the control input, likewise"),
        _field(
            "pins", pa.string(), "JSON: the version of each further input that the batch read; null if it read none"
        ),
    ]
)


def inputs_schema(sides: Iterable[str]) -> pa.Schema:
    """Return the table's schema; of a pipeline of several inputs it has the events of each."""
    counts = [
        _field(_column(side, name), pa.int64(), f"Events of {side}: {_COUNTED[name]}")
        for side in sides
        for name in schemas.PER_INPUT
    ]
    return pa.schema([*BATCH_INPUTS_SCHEMA, *counts])


def _column(side: str, name: str) -> str:
    return f"{side}_{name}"


@dataclass(frozen=True)
class BatchInputs:
    """A batch's inputs besides the rows; times in microseconds."""

    batch_id: int
    changelog_version: int
    clock_us: int
    watermark_before_us: int | None
    watermark_us: int | None
    settings: dict[str, Any]
    """The settings of classification; from `batch_inputs` with the batch's computed columns."""
    events: Any
    """Spark's JSON of the position in the event source; of several, a list in the order of `Kind.inputs`."""
    corrections: dict[str, Any] | None
    pins: Mapping[str, str] = field(default_factory=dict)
    """The versions of further inputs that the batch read (`BatchCommit.pins`)."""
    counts: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The counts of the batch's commit, for the table; not read back from it."""


class InputLog:
    """The batches' inputs as they are committed; saves them before Spark forgets their positions."""

    def __init__(self, tables: Tables, config: Config) -> None:
        self._tables, self._config = tables, config
        self._saved: int | None = None
        self._last: _Last | None = None

    def committed(self, batch_id: int) -> None:
        """Save the unsaved batches if there are many."""
        if self._saved is None:
            self._saved = saved_batch(self._tables)
        if batch_id - self._saved < _SAVE_AFTER:
            return
        schema = inputs_schema(self._config.section.sides)
        self._tables[BATCH_INPUTS].create(schema, "What each micro-batch was a function of, besides rows")
        self._tables[BATCH_INPUTS].grow(schema)
        known = self._tables[BATCH_INPUTS].latest_version()
        rows = list(_unsaved(self._tables, self._config, batch_id, self._last or _last_saved(self._tables)))
        table = pa.Table.from_pylist([_row(row, self._config.section.sides) for row in rows], schema=schema)
        self._tables[BATCH_INPUTS].append_file(table, BATCH_INPUTS, batch_id, after_version=known)
        whole = rows and rows[-1].batch_id == batch_id
        self._last = (batch_id, rows[-1].changelog_version, rows[-1].watermark_us) if whole else None
        self._saved = batch_id


def saved_batch(tables: Tables) -> int:
    """Return the latest batch in the table; -1 if there is none."""
    if not tables[BATCH_INPUTS].exists():
        return -1
    version = tables[BATCH_INPUTS].app_version(BATCH_INPUTS)
    return -1 if version is None else version


def batch_inputs(tables: Tables, config: Config, up_to: int) -> list[BatchInputs]:
    """Return the inputs of all batches up to a batch, in order: a few hundred bytes each.

    The first batch of a warehouse that was rebuilt from an archive is not batch 0.
    Raises PipelineStateError if a batch's inputs are known no more.
    """
    inputs_by_batch: list[BatchInputs] = []
    if tables[BATCH_INPUTS].exists():
        times = [F.unix_micros(name).alias(name) for name in ("clock", "watermark_before", "watermark")]
        rows = tables[BATCH_INPUTS].read().where(F.col("batch_id") <= up_to)
        # Tables of before batches read further inputs lack the column.
        pins = F.col("pins") if "pins" in rows.columns else F.lit(None)
        rows = rows.select("batch_id", "changelog_version", *times, "settings", "events", "corrections", pins)
        inputs_by_batch = [
            replace(
                BatchInputs(*row[:5], *(json.loads(text) if text else None for text in row[5:8])),
                pins=json.loads(row[8] or "{}"),
            )
            for row in rows.toLocalIterator()
        ]
    by_id = {
        inputs.batch_id: inputs for inputs in (*inputs_by_batch, *_unsaved(tables, config, up_to, _last_saved(tables)))
    }
    first = read_batches(tables).agg(F.min("batch_id")).collect()[0][0] or 0
    missing = next((b for b in range(first, up_to + 1) if b not in by_id), None)
    if missing is not None:
        raise PipelineStateError(
            f"pipeline.warehouse: the input of batch {missing} is no longer known (neither table {BATCH_INPUTS!r} nor the "
            "checkpoint has it); to compute the results again, use `sessionlake rebuild`"
        )
    settings = last_batch(tables).settings
    return [
        replace(inputs, settings=with_columns(config, inputs.settings, columns_then(config, settings, batch)))
        for batch, inputs in ((b, by_id[b]) for b in range(first, up_to + 1))
    ]


_Last = tuple[int, int, int | None]
"""The last batch in the table: its batch_id, changelog version and watermark."""


def _unsaved(tables: Tables, config: Config, up_to: int, last: _Last) -> Iterator[BatchInputs]:
    saved, version, before = last
    for commit in batches_after(tables, version):
        batch, watermark = commit.batch_id, commit.watermark_us
        text = tables.read_text(f"{config.checkpoint}/offsets/{batch}")
        lines = (text or "").splitlines()
        if saved < batch <= up_to and len(lines) >= 4:
            clock = clock_of(text)
            *events, corrections = (None if line == "-" else json.loads(line) for line in lines[2:])
            live = dict(commit.settings.live)
            read = events[0] if len(events) == 1 else events
            yield BatchInputs(
                batch, commit.version, clock, before, watermark, live, read, corrections, commit.pins, commit.counts
            )
        before = watermark


def _last_saved(tables: Tables) -> _Last:
    batch = saved_batch(tables)
    if batch < 0:
        return -1, -1, None
    row = tables[BATCH_INPUTS].read().where(F.col("batch_id") == batch)
    first = row.select("batch_id", "changelog_version", F.unix_micros("watermark")).head()
    return (-1, -1, None) if first is None else (first[0], first[1], first[2])


def _row(inputs: BatchInputs, sides: Iterable[str]) -> dict[str, Any]:
    texts = {
        name: None if value is None else json.dumps(value)
        for name, value in (
            ("settings", inputs.settings),
            ("events", inputs.events),
            ("corrections", inputs.corrections),
            ("pins", dict(inputs.pins) or None),
        )
    }
    return {
        "batch_id": inputs.batch_id,
        "changelog_version": inputs.changelog_version,
        "clock": inputs.clock_us,
        "watermark_before": inputs.watermark_before_us,
        "watermark": inputs.watermark_us,
        **texts,
        **{
            _column(side, name): inputs.counts.get(schemas.count_of(name, side), 0)
            for side in sides
            for name in schemas.PER_INPUT
        },
    }
