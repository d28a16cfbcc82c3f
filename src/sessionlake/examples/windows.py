"""The demo's windows: the same commit events by the week of a project, and by each author's last seven days."""

import os
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.table import table_of
from sessionlake.extras import has_module
from sessionlake.reading import read_windows

PICTURE = "windows.png"
PIPELINES = ("weeks", "bursts")
KINDS = "kinds"
"""The folder of the table in which the weeks look up kinds of files."""


def show_windows(spark: SparkSession, root: Path, console: Console) -> None:
    """Show the results of both pipelines."""
    for name in PIPELINES:
        read_windows(spark, load_config(root / f"{name}.toml")).createOrReplaceTempView(name)
    console.print(
        table_of(
            "tumbling: the busiest weeks of each project",
            spark.sql("""
                select week, project, changes, added, code `of code`, authors from (
                  select date_format(window_start, 'yyyy-MM-dd') week, window_key project, event_count changes, lines_added added, code_added code, authors,
                         row_number() over (partition by window_key order by event_count desc) n from weeks)
                where n = 1 order by changes desc limit 6"""),
        )
    )
    console.print(
        table_of(
            "sliding: the most that an author changed within any seven days",
            spark.sql("""
                select author, until, changes, added from (
                  select window_key author, date_format(window_end, 'yyyy-MM-dd HH:mm') until, event_count changes, lines_added added,
                         row_number() over (partition by window_key order by event_count desc, window_end) n from bursts)
                where n = 1 order by changes desc limit 6"""),
        )
    )
    if has_module("matplotlib"):
        # Only the picture needs matplotlib, which the core does not bring.
        from sessionlake.examples.picture import draw_windows  # noqa: PLC0415

        draw_windows(spark, root / PICTURE)
        console.print(f"picture of the windows over time: {os.path.relpath(root / PICTURE)}")
