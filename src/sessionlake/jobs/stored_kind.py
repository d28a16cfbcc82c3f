"""The kind of a pipeline with batches: the batches fixed the types of the columns."""

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.sources.registry import sources_of
from sessionlake.stream.changes import check_changes
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.pinned import Pinned
from sessionlake.warehouse.batch_commit import BatchCommit


def stored_kind(spark: SparkSession, config: Config, last: BatchCommit) -> Kind:
    """Return the kind that computed the last batch.

    Raises PipelineStateError if the tables were made with other settings.
    """
    kind = kind_of(config)
    check_changes(config, last, kind.bound_settings())
    return kind.make(config, sources_of(spark, config), Pinned.of(last))
