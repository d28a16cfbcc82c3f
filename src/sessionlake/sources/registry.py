"""The kinds of sources by the name that `source.kind` has."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.sources.base import Source
from sessionlake.sources.delta import DeltaSource
from sessionlake.sources.files import FileSource
from sessionlake.sources.kafka import KafkaSource

KINDS: dict[str, Callable[[SparkSession, Config], Source]] = {
    source.name: source for source in (FileSource, DeltaSource, KafkaSource)
}


def source_of(spark: SparkSession, config: Config) -> Source:
    """Return a pipeline's source."""
    return KINDS[config.source.kind](spark, config)
