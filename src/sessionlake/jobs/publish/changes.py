"""Every change of a session or window to a topic: at the first start all rows, from then on the new rows of the changelog."""

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.config.source import KafkaSink
from sessionlake.engine import failpoints
from sessionlake.errors import FencedError, PipelineStateError, SessionlakeError
from sessionlake.jobs.publish.records import OnBatch, OnTurn, send, without_quarantined
from sessionlake.sources import kafka_cluster as kafka
from sessionlake.stream.queries import answered, is_second_driver, run_to_end
from sessionlake.warehouse.streamed_files import are_gone
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.topic_position import FROM_VERSION, from_version
from sessionlake.warehouse.views import changes, latest_changes, merged_rows


def publish_changes(
    tables: Tables,
    config: Config,
    sink: KafkaSink,
    checkpoint: str,
    *,
    once: bool,
    on_batch: OnBatch,
    meanwhile: OnTurn,
) -> tuple[int, bool]:
    """Publish until stopped or, with `once`, up to now; return how often records were sent, and whether from the beginning on."""
    batches, of = 0, tables.changelog
    first = not tables.names(f"{checkpoint}/stream/offsets")
    version = from_version(tables, checkpoint)
    if first:
        send(without_quarantined(merged_rows(tables).withColumn("op", F.lit("upsert")), config), of, sink)
        failpoints.hit("published_all")
        batches += 1
        on_batch(batches, True)

    def changed(rows: DataFrame, _batch_id: int) -> None:
        nonlocal batches
        send(without_quarantined(latest_changes(changes(rows, after=-1), of), config), of, sink)
        failpoints.hit("published")
        batches += 1
        on_batch(batches, False)

    changelog = (
        tables.spark.readStream.format("delta")
        .option("startingVersion", version)
        # Rows that maintenance rewrites or trims have been published before.
        .option("skipChangeCommits", "true")
        .load(tables[of.changes].uri)
    )
    try:
        with answered(changed) as batch:
            writer = (
                changelog.writeStream.foreachBatch(batch)
                .option("checkpointLocation", f"{checkpoint}/stream")
                .queryName(f"{config.pipeline.name}-publish")
            )
            run_to_end(config, writer, once=once, meanwhile=meanwhile)
    except StreamingQueryException as error:
        raise _explained(str(error), tables, checkpoint) or error from error
    return batches, first


def pin_version(tables: Tables, checkpoint: str) -> None:
    """Record, once and before rows are read, the version of the changelog with which the stream begins.

    A row that is deleted between two attempts of the first publication must come in the stream, because the later
    attempt no longer reads it.
    """
    tables.write_text_once(f"{checkpoint}/{FROM_VERSION}", str(tables[tables.changelog.changes].latest_version()))


def _explained(text: str, tables: Tables, checkpoint: str) -> SessionlakeError | None:
    if is_second_driver(text):
        return FencedError("publish: another process publishes to this topic; stop it first")
    if are_gone(text):
        return PipelineStateError(
            f"publish: changes that were not read yet are gone from {tables.changelog.changes!r}; delete {checkpoint!r} to start with all "
            f"{tables.changelog.snapshot}, and make a new topic, in which those deleted meanwhile are not"
        )
    return kafka.explained(text, "sink.kafka")
