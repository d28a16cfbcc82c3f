"""The demo's chain: the sittings of each day, by a pipeline that reads the results of the one that computes the sittings."""

from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.table import table_of
from sessionlake.jobs.publish import publish
from sessionlake.reading import read
from sessionlake.warehouse.arrow_files import delta_rows
from sessionlake.warehouse.lake import opened
from sessionlake.warehouse.sink_position import sink_of

PIPELINE, PUBLISHED = "days", "published"
"""Its name, and the folder of its plain table."""


def show_days(spark: SparkSession, root: Path, console: Console) -> None:
    """Show the results, and publish them as a plain table."""
    config = load_config(root / f"{PIPELINE}.toml")
    read(spark, config).createOrReplaceTempView(PIPELINE)
    console.print(
        table_of(
            "a group for each day, of all sessions as they are now: the busiest days",
            spark.sql("""
                select substring(group_key, 1, 10) day, sittings, authors, lines_added added,
                       cast(longest_minutes as int) `longest, minutes`, cast(typical_minutes as int) `typical, minutes`
                from days order by sittings desc, day limit 6"""),
        )
    )
    publish(spark, config, once=True)
    table = sink_of(config).path
    days = sum(part.num_rows for part in delta_rows(opened(table)))
    console.print(
        f"{days:,} days as a plain table, which each engine that reads Delta can open: {table}", soft_wrap=True
    )
    console.print(f"for example in Python: deltalake.DeltaTable({table!r}).to_pandas()", soft_wrap=True)
