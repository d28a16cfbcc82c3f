"""The demo's tables: of each folder of each project the latest change, whenever it came; and those of the last year, older ones expired."""

import gzip
import json
import os
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.table import table_of
from sessionlake.reading import read_table

CHANGES = "changes"
PIPELINE, RECENT = "folders", "recent"


def write_changes(root: Path) -> None:
    """Write for each file of events in `root` one of changes, in the same order: each event with the folder that it is of."""
    target = root / CHANGES
    target.mkdir(exist_ok=True)
    kept = ("event_id", "authored_at", "repo", "author", "ext", "added")
    for file in sorted((root / "events").glob("*.json.gz")):
        with gzip.open(file, "rt") as lines:
            rows = [
                {"folder": f"{e['repo']}/{_folder(e['top'])}", **{k: e[k] for k in kept}}
                for e in map(json.loads, lines)
            ]
        written = target / file.name.removesuffix(".gz")
        written.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        moment = file.stat().st_mtime
        os.utime(written, (moment, moment))


def _folder(top: str) -> str:
    """Return the folder of a file; for a moved file, which git writes as `{old => new}`, the new folder."""
    return top.rpartition("=> ")[2].strip("{}")


def show_table(spark: SparkSession, root: Path, console: Console, name: str = PIPELINE) -> None:
    """Show the results of one of the tables."""
    read_table(spark, load_config(root / f"{name}.toml")).createOrReplaceTempView("latest_changes")
    console.print(
        table_of(
            "table: of each project the folders, and the one that was left alone for the longest",
            spark.sql("""
                select repo project, count(*) folders, date_format(max(event_time), 'yyyy-MM-dd') `latest change`,
                       min_by(table_key, event_time) `quietest folder`, date_format(min(event_time), 'yyyy-MM-dd') `its latest change`
                from latest_changes group by 1 order by folders desc"""),
        )
    )
