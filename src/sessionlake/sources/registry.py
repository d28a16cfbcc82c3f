"""A pipeline's sources, by their kinds in `config/sources.py`."""

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.sources.base import Source
from sessionlake.sources.exploded import exploded
from sessionlake.sources.lookups.source import with_lookups
from sessionlake.sources.lookups.tables import tables_of


def sources_of(spark: SparkSession, config: Config) -> dict[str, Source]:
    """Return a pipeline's sources by event input, in the order in which a query reads them."""
    return {
        name: _with_lookups(spark, named(side.source.entry.source)(spark, side, number), side)
        for number, (name, side) in enumerate(config.inputs.items())
    }


def _with_lookups(spark: SparkSession, source: Source, side: Config) -> Source:
    tables = tables_of(side, lambda config: named(config.source.entry.source)(spark, config))
    return with_lookups(exploded(source, side), side, tables)
