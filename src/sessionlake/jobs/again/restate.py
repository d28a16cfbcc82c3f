"""Events that the stream refused, as rows of corrections, shared by reprocess_late and redeem; and the kind that computed the stored rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.columnar.arrays import Ints, combined
from sessionlake.config.load import Config
from sessionlake.jobs.run import JobRun, digest
from sessionlake.sources.registry import sources_of
from sessionlake.stream.capabilities import Restating
from sessionlake.stream.changes import check_changes
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.unique.events import id_hashes
from sessionlake.stream.watermark import watermark_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.spark_columns import map_in_arrow
from sessionlake.warehouse.streamed_files import BATCH
from sessionlake.warehouse.tables import Tables, spark_schema


def last_batch_pins(config: Config, tables: Tables) -> dict[str, Any]:
    """Return the last batch's pins: id, watermark, and the time before which restates are refused."""
    last, kind = last_batch(tables), kind_of(config)
    check_changes(config, last, kind.bound_settings())
    return {
        "batch_id": last.batch_id,
        "watermark_us": watermark_of(last.state),
        "expired_us": kind.expired_us(config, dict(last.state)),
    }


def restatements(run: JobRun, events: DataFrame, kind: Kind, *, with_ids: bool = False) -> DataFrame:
    """Return the corrections with which a run that pinned `last_batch_pins` restates events (rows as late_events has them).

    With `with_ids` each event has a correction of its own, which names its identity.
    """
    if with_ids:
        partials = _with_ids(events, kind, last_batch(run.tables).settings.unique_secret)
    else:
        partials = restated(events, kind, run.pinned["watermark_us"])
    # Two restates of a run never share key and start, nor kind and ordinal, nor identity if partials have these columns.
    names = ("kind", "ordinal", *(field.name for field in schemas.ID_FIELDS))
    more = [F.col(name).cast("string") for name in names if name in partials.columns]
    identity = digest(F.unix_micros("start_time").cast("string"), F.col("key"), *more)
    correction_id = F.concat(F.lit(f"{run.app_id}/"), identity)
    kinds = {} if "kind" in partials.columns else {"kind": F.lit("restate")}
    layouts = next(iter(kind.inputs.values())).layouts
    return run.corrections(partials, layouts, correction_id=correction_id, **kinds)


def restating_of(kind: Kind) -> Restating:
    """Return the capability of a kind that `require_known` let a job at."""
    if kind.restating is None:
        raise NotImplementedError(f"{kind.changelog.name}: late events can't be restated")
    return kind.restating


def _with_ids(events: DataFrame, kind: Kind, secret: str) -> DataFrame:
    """Return a restate of each event by itself, with its identity (docs/rules.md, rule 226)."""
    restating = restating_of(kind)
    alone, schema = restating.alone, pa.schema([*restating.merge(0).schema, *schemas.ID_FIELDS])
    if alone is None:
        raise NotImplementedError(f"{kind.changelog.name}: events can't be restated one by one")

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            late = pa.Table.from_batches([batch])
            keys, ids = (combined(late[name]) for name in ("key", "event_id"))
            hashes = id_hashes(keys, ids, 0, secret)
            columns = [*alone(late).columns, late["time_us"].cast(schemas.TIME), pa.array(hashes)]
            yield from pa.Table.from_arrays(columns, schema=schema).to_batches()

    return map_in_arrow(_events(events, kind), each, spark_schema(schema))


def restated(late: DataFrame, kind: Kind, watermark_us: int) -> DataFrame:
    """Return rows of late_events, merged as the operator of a pipeline whose watermark is this says."""
    merge = restating_of(kind).merge(watermark_us)

    def merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in _whole_cells(batches, merge.cell):
            yield from merge.merge(piece).to_batches()

    placed = _events(late, kind).repartition("key").sortWithinPartitions("key", "time_us")
    return map_in_arrow(placed, merged, spark_schema(merge.schema))


def _events(late: DataFrame, kind: Kind) -> DataFrame:
    """Return rows of late_events as restates are made of them."""
    own = [name for name in (*(field.name for field in kind.late_columns), BATCH) if name in late.columns]
    time = F.unix_micros("event_time").alias("time_us")
    return late.select(F.col("key").alias("key"), time, "event_id", "event", *own)


def without_partly(late: DataFrame) -> DataFrame:
    """Return the late events that are in no window; partly late events count as accepted."""
    return late.where(~F.col(schemas.PARTLY)) if schemas.PARTLY in late.columns else late


def _whole_cells(batches: Iterable[pa.RecordBatch], cell_of: Callable[[Ints], Ints]) -> Iterator[pa.Table]:
    """Cut sorted rows again so that no cell of a key is divided; holds a batch and a cell in memory."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        cell = cell_of(batch["time_us"].to_numpy())
        last_key = batch["key"][-1]
        in_last = pc.equal(batch["key"], last_key).to_numpy(zero_copy_only=False) & (cell == cell[-1])
        cut = int(np.argmax(in_last))
        before = cell_of(held[-1]["time_us"].to_numpy()[-1:]) if held else None
        goes_on = before is not None and held[-1]["key"][-1] == last_key and before[0] == cell[-1]
        if cut or not goes_on:
            whole = [*held, batch.slice(0, cut)]
            yield pa.Table.from_batches(whole, batch.schema)
            held = []
        held.append(batch.slice(cut))
    if held:
        yield pa.Table.from_batches(held)


def stored_kind(spark: SparkSession, config: Config, last: BatchCommit) -> Kind:
    """Return the kind that computed the last batch.

    Raises PipelineStateError if the tables were made with other settings.
    """
    kind = kind_of(config)
    check_changes(config, last, kind.bound_settings())
    return kind.make(config, sources_of(spark, config), Pinned.of(last))
