"""The demo's join: each commit with the commits that its author made within an hour after it."""

import gzip
import json
import os
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.table import table_of
from sessionlake.reading import read_joins

COMMITS = "commits"
PIPELINE = "followups"


def write_commits(root: Path) -> None:
    """Write for each file of events in `root` one of commits, a row each, in the same order."""
    folder = root / COMMITS
    folder.mkdir(exist_ok=True)
    for file in sorted((root / "events").glob("*.json.gz")):
        commits: dict[str, dict[str, object]] = {}
        with gzip.open(file, "rt") as lines:
            for event in map(json.loads, lines):
                name = event["event_id"].partition("-")[0]
                kept = {key: event[key] for key in ("author", "authored_at", "repo")}
                commit = commits.setdefault(name, {"commit": name, **kept, "files": 0})
                commit["files"] = int(str(commit["files"])) + 1
        target = folder / file.name.removesuffix(".gz")
        target.write_text("".join(f"{json.dumps(commit)}\n" for commit in commits.values()))
        moment = file.stat().st_mtime
        os.utime(target, (moment, moment))


def show_joins(spark: SparkSession, root: Path, console: Console) -> None:
    """Show the results of the join."""
    read_joins(spark, load_config(root / f"{PIPELINE}.toml")).createOrReplaceTempView(PIPELINE)
    console.print(
        table_of(
            "join: commits that their authors followed up within an hour",
            spark.sql("""
                select first_repo project, count(*) pairs, count(distinct join_key) authors,
                       cast(percentile(unix_seconds(right_time) - unix_seconds(left_time), 0.5) / 60 as int) `median minutes`,
                       count_if(next_repo <> first_repo) `in another project`
                from followups where first_commit <> next_commit group by 1 order by pairs desc"""),
        )
    )
