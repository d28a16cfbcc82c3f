"""The demo's windows: the same commit events by the week of a project, and by each author's last seven days."""

import os
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.table import table_of
from sessionlake.extras import has_module
from sessionlake.operators.run import run
from sessionlake.reading import read_windows

FOLDER = "windows"
PICTURE = "windows.png"
_CONFIG = """\
[pipeline]
name = "{name}"
warehouse = "windows/{name}"
store = "windows/store"
shards = 2

[source]
kind = "files"
path = "events"
format = "json"
max_files_per_batch = 12

[event]
key = "{key}"
time = "authored_at"
id = "event_id"
unique_for = "90 days"
max_future_skew = "1 day"

[window]
{window}
retention_time = "90 days"

{emit}
[aggregates]
lines_added = "sum(added)"
authors = "count_distinct(author)"
"""
_WEEKS = """\
kind = "tumbling"
size = "7 days"
offset = "4 days"    # the epoch was a Thursday: weeks begin on Mondays
grace = "30 days"
"""
_BURSTS = """\
kind = "sliding"
size = "7 days"
grace = "30 days"
"""
# Each window once, when nothing can change it any more; weeks are sent with every change.
_FINAL = """\
[emit]
full = "close"
late = "close"
"""
_UPDATES = """\
[emit]
early = "batch"
late = "batch"
"""
CONFIGS = {
    "weeks.toml": _CONFIG.format(name="weeks", key="repo", window=_WEEKS, emit=_UPDATES),
    "bursts.toml": _CONFIG.format(name="bursts", key="author", window=_BURSTS, emit=_FINAL),
}


def run_windows(spark: SparkSession, root: Path, console: Console) -> None:
    """Run both pipelines over the demo's events, and show the results."""
    for name in CONFIGS:
        config = load_config(root / name)
        summary = run(spark, config, once=True, drain=True)
        console.print(
            f"{config.pipeline.name}: {summary.counts['input']:,} events in {summary.batches} batches, "
            f"{summary.counts['late']:,} late, {summary.counts['upserts']:,} rows sent"
        )
        read_windows(spark, config).createOrReplaceTempView(config.pipeline.name)
    console.print(
        table_of(
            "tumbling: the busiest weeks of each project",
            spark.sql("""
                select week, project, changes, added, authors from (
                  select date_format(window_start, 'yyyy-MM-dd') week, window_key project, event_count changes, lines_added added, authors,
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
