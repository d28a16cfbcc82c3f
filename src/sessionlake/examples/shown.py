"""The demo's operators on the same commit events: a chain, a join, tables and windows."""

import gzip
import json
import os
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from sessionlake.config.load import load_config
from sessionlake.extras import has_module
from sessionlake.jobs.publish import publish
from sessionlake.reading import read, read_joins, read_table, read_windows
from sessionlake.warehouse.arrow_files import delta_rows
from sessionlake.warehouse.lake import opened
from sessionlake.warehouse.sink_position import sink_of


def table_of(title: str, rows: DataFrame) -> Table:
    """Return the rows, few of them, under a title."""
    table = Table(*rows.columns, title=title, title_justify="left")
    for row in rows.collect():
        table.add_row(*(f"{v:,}" if isinstance(v, int) else "" if v is None else str(v) for v in row))
    return table


DAYS, PUBLISHED = "days", "published"
"""Name and folder of the chain's plain table."""


def show_days(spark: SparkSession, root: Path, console: Console) -> None:
    """Show the results, and publish them as a plain table."""
    config = load_config(root / f"{DAYS}.toml")
    read(spark, config).createOrReplaceTempView(DAYS)
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


COMMITS = "commits"
FOLLOWUPS = "followups"


def write_commits(root: Path) -> None:
    """Write for each file of events in `root` a file of commits, a row each, in the same order."""
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
    read_joins(spark, load_config(root / f"{FOLLOWUPS}.toml")).createOrReplaceTempView(FOLLOWUPS)
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


CHANGES = "changes"
FOLDERS, RECENT = "folders", "recent"


def write_changes(root: Path) -> None:
    """Write for each file of events in `root` a file of changes, in the same order: each event with its folder."""
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


def show_table(spark: SparkSession, root: Path, console: Console, name: str = FOLDERS) -> None:
    """Show a table's results."""
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
