"""The tables of identities and of duplicates, and how a store gets its identities back."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.engine.outputs import Output
from sessionlake.errors import PipelineStateError
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.kind import Kind, State, TableSpec
from sessionlake.stream.outputs import archived_rows
from sessionlake.stream.unique.events import ID_HASH, id_hashes
from sessionlake.stream.unique.operator import DUPLICATES, ID_TIME, IDS, Unique
from sessionlake.stream.watermark import watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMMENTS: Mapping[str, str] = {
    schemas.EVENT_IDS: "Identities of the events that were taken: accepted or late",
    schemas.DUPLICATES: "Events that came again: same key, id and time",
}


def tables_of(kind: Kind) -> list[TableSpec]:
    """Return a pipeline's tables for duplicates; none if it does not search for them."""
    return [TableSpec(name, _schema(kind), _COMMENTS[name]) for name in _names(kind)]


def outputs_of(tables: Tables, kind: Kind) -> list[Output]:
    """Return the outputs for these tables, also for those of a time when the config asked for them.

    A batch that was interrupted then ends as it was begun, and drivers that still ask for them are refused there, too.
    """
    kinds = {schemas.EVENT_IDS: IDS, schemas.DUPLICATES: DUPLICATES}
    asked = _names(kind)
    return [
        Output(
            kinds[name],
            name,
            tables[name].uri,
            _schema(kind),
            archived_rows,
            guarded=name == schemas.EVENT_IDS and name in asked,
        )
        for name in kinds
        if name in asked or tables[name].exists()
    ]


def require_ids(tables: Tables, kind: Kind) -> None:
    """Raise PipelineStateError if the identities that the last batch took are gone."""
    if not _names(kind) or tables[schemas.EVENT_IDS].exists() or not tables[tables.changelog.changes].exists():
        return
    last = find_last_batch(tables)
    live = {} if last is None else last.settings.live
    if any("unique_for_us" in settings for settings in (live, *(live.get(name, {}) for name in kind.inputs))):
        raise PipelineStateError(
            f"table {schemas.EVENT_IDS!r}: is missing in {tables.warehouse!r}, and identities of events are restored from it; "
            "put a backup back, or rebuild the tables with `sessionlake rebuild` (docs/recovery.md)"
        )


def with_ids(tables: Tables, kind: Kind, unique: Unique, state: State, stored: "DataFrame") -> "DataFrame":
    """Return the rows to restore an operator's shards, with the identities still asked for, of committed batches."""
    last = find_last_batch(tables)
    until = -1 if last is None else last.batch_id
    known = tables[schemas.EVENT_IDS].read().select("batch_id", "key", "event_time", ID_HASH)
    time_us = F.unix_micros("event_time")
    for ids in (known, *_archived(tables, kind, unique_since(kind.inputs, last), unique.secret)):
        asked = ids.where((F.col("batch_id") <= until) & (time_us >= watermark_of(state) - unique.remembered_us))
        stored = stored.unionByName(asked.select("key", time_us.alias(ID_TIME), ID_HASH), allowMissingColumns=True)
    return stored


def unique_since(inputs: Mapping[str, EventSpec], last: BatchCommit | None) -> dict[str, int]:
    """Return by input the batch from which on duplicates are taken out, given the last batch; None if there is none."""
    known, following = ({}, 0) if last is None else (last.settings.unique_since, last.batch_id + 1)
    return {name: known.get(name, following) for name, spec in inputs.items() if spec.unique_us is not None}


def _archived(tables: Tables, kind: Kind, since: Mapping[str, int], secret: str) -> "Iterator[DataFrame]":
    """Yield by input the archive's identities of batches without `unique_for`; identities of events without an id are never asked for."""
    archive = tables[schemas.EVENTS]
    if not any(since.values()) or not archive.exists():
        return
    events = archive.read()
    for number, name in enumerate(kind.inputs):
        if since.get(name):
            own = events.where(F.col(schemas.SIDE) == name) if schemas.SIDE in events.columns else events
            rows = own.where(F.col("batch_id") < since[name]).select("batch_id", "key", "event_time", "event_id")
            yield hashed(rows, number, secret)


def hashed(rows: "DataFrame", number: int, secret: str) -> "DataFrame":
    """Return rows that have `key` and `event_id` with the identity's hash in place of `event_id`; see `id_hashes`."""
    schema = rows.drop("event_id").schema.add(ID_HASH, "long")

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            hashes = pa.array(id_hashes(batch["key"], batch["event_id"], number, secret))
            yield batch.drop_columns(["event_id"]).append_column(ID_HASH, hashes)

    return map_in_arrow(rows, each, schema)


def _names(kind: Kind) -> list[str]:
    asked = [spec for spec in kind.inputs.values() if spec.unique_us is not None]
    shown = any(spec.shows_duplicates for spec in asked)
    return [schemas.EVENT_IDS, *([schemas.DUPLICATES] if shown else [])] if asked else []


def _schema(kind: Kind) -> pa.Schema:
    return schemas.event_ids(sided=len(kind.inputs) > 1)
