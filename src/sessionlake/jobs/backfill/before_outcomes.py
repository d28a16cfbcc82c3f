"""Which batch took a correction, and whether it refused it, where no batch has said so: of releases before correction_outcomes.

Reconstructed from the batches' positions in the control input, Delta's log of it, and the dead letters; what the log no
longer has is told from when its corrections were written. Warehouses made since need none of it.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.late.ledger import refused_corrections
from sessionlake.stream.input_log import BatchInputs
from sessionlake.warehouse import schemas
from sessionlake.warehouse.outcomes import NEVER
from sessionlake.warehouse.streamed_files import BATCH, StreamedFile, streamed_files, with_batches
from sessionlake.warehouse.tables import Tables


def taken_before(tables: Tables, inputs: list[BatchInputs], topical: DataFrame | None) -> DataFrame:
    """Return what became of each correction that the first batches took, a topic's too: correction_id, outcome, batch_id.

    `inputs` are those of all batches before the first of which correction_outcomes tells, `topical` their tombstones of a
    topic. A file of the table that the log does not place (its rows were copied when others were erased) is placed by the
    time at which its corrections were written.
    """
    placed = with_batches(tables[schemas.CORRECTIONS].read(), _placed(tables, inputs))
    clocks = tables.spark.createDataFrame([(i.batch_id, i.clock_us) for i in inputs], "_batch long, _clock long")
    created = F.unix_micros("created_at")
    lost = placed.where(F.col(BATCH).isNull()).select("correction_id", created.alias("_created"))
    first = (
        lost.join(F.broadcast(clocks), F.col("_clock") >= F.col("_created"))
        .groupBy("correction_id")
        .agg(F.min("_batch").alias(BATCH))
    )
    taken = placed.where(F.col(BATCH) < NEVER).select("correction_id", BATCH).unionByName(first)
    if topical is not None:
        taken = taken.unionByName(topical.select("correction_id", BATCH))
    refused = refused_corrections(tables).where(F.col(BATCH) <= inputs[-1].batch_id)
    refused = refused.groupBy("correction_id").agg(F.min("outcome").alias("_refused"))
    outcome = F.coalesce("_refused", F.lit(schemas.APPLIED)).alias("outcome")
    return taken.join(refused, "correction_id", "left").select("correction_id", outcome, BATCH)


def _placed(tables: Tables, inputs: list[BatchInputs]) -> list[StreamedFile]:
    """Return the files of corrections that the batches read, with the batch that did; the later ones with NEVER.

    Reads every commit of the table; those that the log no longer has are left out.
    """
    table = tables[schemas.CORRECTIONS]
    beyond = {"reservoirVersion": table.latest_version() + 1, "index": -1}
    offsets = [*((i.batch_id, i.corrections) for i in inputs), (NEVER, beyond)]
    return streamed_files(table, offsets, {batch for batch, _ in offsets}, skip_gone=True)
