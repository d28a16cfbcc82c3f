"""The sources of a pipeline, as `config/sources.py` lists their kinds."""

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.sources.base import Source


def sources_of(spark: SparkSession, config: Config) -> dict[str, Source]:
    """Return a pipeline's sources by the names of its event inputs, in the order in which one query reads them."""
    inputs = enumerate(config.inputs.items())
    return {name: named(side.source.entry.source)(spark, side, number) for number, (name, side) in inputs}
