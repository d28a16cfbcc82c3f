"""The kinds of sources by the name that `source.kind` has."""

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.sources.base import Source
from sessionlake.sources.delta import DeltaSource
from sessionlake.sources.files import FileSource
from sessionlake.sources.kafka import KafkaSource

KINDS: dict[str, type[FileSource] | type[DeltaSource] | type[KafkaSource]] = {
    source.name: source for source in (FileSource, DeltaSource, KafkaSource)
}


def sources_of(spark: SparkSession, config: Config) -> dict[str, Source]:
    """Return a pipeline's sources by the names of its event inputs, in the order in which one query reads them."""
    inputs = enumerate(config.inputs.items())
    return {name: KINDS[side.source.kind](spark, side, number) for number, (name, side) in inputs}
