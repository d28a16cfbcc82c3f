"""The demo's chain: the sittings of each day, by a pipeline that reads the results of the one that computes the sittings."""

from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.table import table_of
from sessionlake.reading import read

PIPELINE = "days"


def show_days(spark: SparkSession, root: Path, console: Console) -> None:
    """Show the results."""
    read(spark, load_config(root / f"{PIPELINE}.toml")).createOrReplaceTempView(PIPELINE)
    console.print(
        table_of(
            "a group for each day, of all sessions as they are now: the busiest days",
            spark.sql("""
                select substring(group_key, 1, 10) day, sittings, authors, lines_added added,
                       cast(longest_minutes as int) `longest, minutes`, cast(typical_minutes as int) `typical, minutes`
                from days order by sittings desc, day limit 6"""),
        )
    )
