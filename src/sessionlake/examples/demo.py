"""The demo: real commit events become coding sittings, from files to Delta tables, in one command."""

import gzip
import json
import os
import shutil
import sys
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.cli.progress import progress
from sessionlake.cli.shared import open_session
from sessionlake.cli.status import print_status
from sessionlake.cli.stream import print_batch, print_summary
from sessionlake.cli.tables import register_tables
from sessionlake.config.load import Config, load_config
from sessionlake.errors import SourceError
from sessionlake.examples import joins, pauses, tables
from sessionlake.examples.jobs import run_jobs
from sessionlake.examples.table import table_of
from sessionlake.examples.windows import CONFIGS, FOLDER, run_windows
from sessionlake.extras import has_module
from sessionlake.observe.status import read_status
from sessionlake.operators.run import run

CONFIG = """\
[pipeline]
name = "commits"
warehouse = "warehouse"
shards = 4
trigger = "10 seconds"
archive = true

[source]
kind = "files"
path = "events"
format = "json"
max_files_per_batch = 1

[event]
key = "author"
time = "authored_at"
id = "event_id"
where = "ext <> '.parquet'"       # data files are nobody's work
unique_for = "365 days"           # a repeated event counts once
max_future_skew = "1 day"

[event.columns]
changed = "added + deleted"

[session]
gap = "1 hour"
grace = "1 day"
retention = "365 days"
beyond_retention = "dead_letter"

[aggregates]
lines_added = "sum(added)"
lines_deleted = "sum(deleted)"
repos = "count_distinct(repo)"
first_top = "first(top)"
last_top = "last(top)"
file_types = "count_distinct(ext)"
text_added = "sum(added) filter (where ext in ('.md', '.rst', '.txt'))"
largest_change = "max(changed)"
typical_change = "percentile(added, 0.5)"
"""
CONFIG_NAME = "commits.toml"
DIRECTORY = "demo"
REPEATED = 20
"""Events at the end of each file that come again in the next one."""
_MADE = ("warehouse", "store", "events", "quality", joins.COMMITS, tables.CHANGES)
EXAMPLES = Path(__file__).with_name("commits")


def run_demo(directory: str, console: Console) -> None:
    """Make the demo's pipeline in `directory`, run it to the end of its input, and show the results."""
    # Before Spark starts: its workers get a PATH on which this Python's scripts come first.
    root, command = Path(directory).resolve(), _command()
    prepare(root, console)
    config = load_config(root / CONFIG_NAME)
    with progress() as shown:
        spark = open_session(config, driver_memory="2g", little_java=True)

        def part(title: str) -> None:
            console.rule(title)
            shown.step(title)

        part("sessionizing, micro-batch by micro-batch, each committed exactly once")
        print_summary(run(spark, config, once=True, on_commit=print_batch))
        register_tables(spark, config)
        part("results")
        _show(spark, console)
        part("the scheduled jobs, as Airflow would run them")
        run_jobs(spark, config, root, console)
        shown.step("drawing")
        console.print(f"picture of the sessions over time: {_picture(spark, root / 'sessions.png')}")
        part("the same events in windows: a pipeline each")
        run_windows(spark, root, console)
        part("its commits joined with the ones that follow")
        joins.run_joins(spark, root, console)
        part("the latest change of each folder, as a table")
        tables.run_table(spark, root, console)
        print_status(config, read_status(config))
    console.print("the lag is that of the shipped events: they end at the watermark")
    _next(root, command, console)
    spark.stop()


def run_table_alone(directory: str, console: Console) -> None:
    """Show the folders of the last year as a table, in the demo's pipeline in `directory`, which is made if there is none."""
    root = Path(directory).resolve()
    if not (root / CONFIG_NAME).exists():
        prepare(root, console)
    (root / tables.RECENT_NAME).write_text(tables.RECENT)  # a demo of an earlier version lacks it
    with progress() as shown:
        spark = open_session(load_config(root / tables.RECENT_NAME), driver_memory="2g", little_java=True)
        shown.step("the latest change of each folder")
        tables.run_table(spark, root, console, tables.RECENT_NAME)
    spark.stop()


def served_config(directory: str) -> Config:
    """Return the config of the demo's sessions; SourceError if the demo did not run in `directory`."""
    file = Path(directory).resolve() / CONFIG_NAME
    if not (file.parent / "warehouse").exists():
        raise SourceError(
            f"demo: {directory!r} has no sessions to serve yet; run `sessionlake demo` first, with the same --directory"
        )
    return load_config(file)


def prepare(root: Path, console: Console) -> None:
    """Make the demo's pipeline in `root`: its config and its files of events; an old one is replaced.

    Raises SourceError if the folder holds such things and is no demo's.
    """
    taken = [root / name for name in (*_MADE, FOLDER) if (root / name).exists()]
    if taken and not (root / CONFIG_NAME).exists():
        raise SourceError(f"demo: {str(taken[0])!r} is there and is no demo's; pass --directory with a new folder")
    for old in taken:
        shutil.rmtree(old)
    (root / "events").mkdir(parents=True)
    more = {joins.CONFIG_NAME: joins.CONFIG, pauses.CONFIG_NAME: pauses.CONFIG}
    for name, text in {CONFIG_NAME: CONFIG, **CONFIGS, **more, **tables.CONFIGS}.items():
        (root / name).write_text(text)
    for file in sorted(EXAMPLES.glob("*.json.gz")):
        copied = root / "events" / file.name
        shutil.copy(file, copied)
        # Files are read in order of their modification time: here the time at which the last commit arrived.
        with gzip.open(copied, "rt") as lines:
            arrived = max(json.loads(line)["committed_at"] for line in lines)
        moment = datetime.fromisoformat(arrived).timestamp()
        os.utime(copied, (moment, moment))
    joins.write_commits(root)
    tables.write_changes(root)
    _repeat(root / "events")
    console.print(
        f"pipeline in {root}: 24 files of real commit events, some of which come twice; a session is a coding sitting (gap 1 hour)"
    )


def _repeat(events: Path) -> None:
    """Write the last events of each file into the next one, too, as a sender does that got no answer."""
    repeated: list[str] = []
    for file in sorted(events.iterdir()):
        moment = file.stat().st_mtime
        with gzip.open(file, "rt") as content:
            lines = content.readlines()
        with gzip.open(file, "wt") as content:
            content.writelines(repeated + lines)
        os.utime(file, (moment, moment))
        repeated = lines[-REPEATED:]


def _show(spark: SparkSession, console: Console) -> None:
    totals = spark.sql(
        "select count(*) n, count(distinct session_key) authors, sum(event_count) events, min(session_start) a, max(session_end) b from sessions_live"
    )
    row = totals.collect()[0]
    console.print(
        f"[bold]{row.n:,} sessions[/bold] of {row.authors:,} authors, {row.events:,} changes, {row.a:%Y-%m-%d} to {row.b:%Y-%m-%d}",
        markup=True,
    )
    console.print(
        table_of(
            "the longest sittings",
            spark.sql("""
                select session_key author, session_start start, cast((unix_seconds(session_end) - unix_seconds(session_start)) / 60 as int) minutes,
                       event_count changes, lines_added added, lines_deleted deleted, text_added `of text`, repos, first_top `first folder`, file_types `file types`
                from sessions_live order by minutes desc, changes desc limit 8"""),
        )
    )
    console.print(
        table_of(
            "late events: past grace, within retention, waiting to be reprocessed",
            spark.sql(
                "select date_format(event_time, 'yyyy') year, count(*) events, count(distinct key) authors from late_events group by 1 order by 1"
            ),
        )
    )
    console.print(
        table_of(
            "dead letters: refused, with their text, place and reason",
            spark.sql("select reason, count(*) events, min(source) `first at` from dead_letters group by 1"),
        )
    )


def _picture(spark: SparkSession, file: Path) -> str:
    """Draw the sessions over time; return the path of the picture, or how to get one."""
    if not has_module("matplotlib"):
        return "pip install 'sessionlake[demo]', and the demo draws one"
    # Only the picture needs matplotlib, which the core does not bring.
    from sessionlake.examples.picture import draw  # noqa: PLC0415

    draw(spark, file)
    return os.path.relpath(file)


def _next(root: Path, command: str, console: Console) -> None:
    config = os.path.relpath(root / CONFIG_NAME)
    where = "" if os.path.relpath(root) == DIRECTORY else f" --directory {os.path.relpath(root)}"
    console.rule("try next")
    for query in (
        "select session_key, sum(lines_added) added from sessions_live group by 1 order by 2 desc limit 10",
        "select op, count(*) from session_changelog group by 1",
        "select * from batches order by batch_id",
        "select job, event, counts from job_runs",
    ):
        console.print(f'  {command} sql {config} "{query}"', soft_wrap=True)
    weeks, query = os.path.relpath(root / "weeks.toml"), "select * from windows_live order by event_count desc limit 10"
    console.print(f'  {command} sql {weeks} "{query}"', soft_wrap=True)
    console.print(f"  {command} status {config}")
    console.print(f"  {command} run {config} --once     # again: nothing new, nothing twice")
    console.print(f"  {command} demo table{where}     # the folders of the last year, older ones expired")
    console.print(f"  {command} demo serve{where}     # the page of the stream, and its sessions over HTTP")


def _command() -> str:
    """Return the command that a user types for `sessionlake`: its name if PATH finds this one, otherwise its path."""
    script = Path(sys.executable).with_name("sessionlake")
    found = shutil.which("sessionlake")
    if found and Path(found) == script:
        return "sessionlake"
    return os.path.relpath(script) if script.exists() else f"{sys.executable} -m sessionlake"
