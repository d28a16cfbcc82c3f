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
from sessionlake.cli.rows import TABLE
from sessionlake.cli.shared import open_session
from sessionlake.cli.status import print_project_status
from sessionlake.cli.stream import print_summary
from sessionlake.cli.tables import register_tables
from sessionlake.cli.together import open_project_session, run_all_once
from sessionlake.config.file import PROJECT_FILE
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import Project, load_project
from sessionlake.config.shipped import shipped_directory
from sessionlake.errors import SourceError
from sessionlake.examples import shown
from sessionlake.examples.jobs import run_jobs
from sessionlake.examples.shown import table_of
from sessionlake.extras import has_module
from sessionlake.stopping import put_off
from sessionlake.stream.run import run

CONFIG_NAME = "commits.toml"
QUERY = "languages.sql"
"""A query, ready to become a further pipeline."""
DIRECTORY = "demo"
REPEATED = 20
"""Events at the end of each file that the next file repeats."""
_MADE = ("warehouse", "store", "events", "quality", shown.PUBLISHED, shown.COMMITS, shown.CHANGES, shown.KINDS)
_EARLIER = ("windows",)
"""Folders of earlier releases' demo."""
_ACROSS = (
    "select f.repo, count(*) folders, max(w.event_count) busiest_week from folders.table_live f "
    "join weeks.windows_live w on w.window_key = f.repo group by 1 order by 2 desc"
)
EXAMPLES = Path(__file__).with_name("commits")


def run_demo(directory: str, console: Console) -> None:
    """Make the demo's project in `directory`, run its pipelines to the end of their input, and show the results."""
    # Before Spark starts: its workers get a PATH on which this Python's scripts come first.
    root, command = Path(directory).resolve(), _command()
    prepare(root, console)
    project = load_project(root)
    config = project.members[Path(CONFIG_NAME).stem].config
    with progress() as steps:
        spark = open_project_session(project, driver_memory="2g")

        def part(title: str) -> None:
            console.rule(title)
            steps.step(title)

        part(
            f"{len(project.members)} pipelines in one process, micro-batch by micro-batch, each committed exactly once"
        )
        _run(spark, project)
        register_tables(spark, config)
        part("the sessions")
        _show(spark, console)
        part("the scheduled jobs, as Airflow would run them")
        run_jobs(spark, config, console)
        steps.step("drawing")
        console.print(f"picture of the sessions over time: {_picture(spark, root / 'sessions.png')}")
        part("the same events in windows")
        shown.show_windows(spark, root, console)
        part("its commits joined with the ones that follow")
        shown.show_joins(spark, root, console)
        part("the latest change of each folder, as a table")
        shown.show_table(spark, root, console)
        part("the days of the sessions: a pipeline on the results of another one")
        shown.show_days(spark, root, console)
        part("all pipelines")
        print_project_status(project, TABLE)
    console.print("the lag is that of the shipped events: they end at the watermark")
    _next(root, command, console)
    spark.stop()


def _run(spark: SparkSession, project: Project) -> None:
    """Run all pipelines once; raise their first error."""
    with put_off() as asked:
        ended = run_all_once(spark, project, asked, drained=shown.PIPELINES)
    if asked.is_set():
        raise KeyboardInterrupt
    for one in ended.values():
        if one.error is not None:
            raise one.error


def run_table_alone(directory: str, console: Console) -> None:
    """Show the folders of the last year as a table, in the demo's project in `directory`, which is made if there is none."""
    root = Path(directory).resolve()
    if not (root / PROJECT_FILE).exists():
        prepare(root, console)
    config = load_config(root / f"{shown.RECENT}.toml")
    with progress() as steps:
        spark = open_session(config, driver_memory="2g", little_java=True)
        steps.step("the latest change of each folder")
        print_summary(run(spark, config, once=True))
        shown.show_table(spark, root, console, shown.RECENT)
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
    """Make the demo's project in `root`: its configs, those of `pipelines/`, and its files of events; an old one is replaced.

    Raises SourceError if the folder holds such things and is no demo's.
    """
    taken = [root / name for name in (*_MADE, *_EARLIER) if (root / name).exists()]
    if taken and not (root / CONFIG_NAME).exists():
        raise SourceError(f"demo: {str(taken[0])!r} is there and is no demo's; pass --directory with a new folder")
    for old in taken:
        shutil.rmtree(old)
    (root / "events").mkdir(parents=True)
    for file in (*sorted(shipped_directory("pipelines").glob("*.toml")), shipped_directory("pipelines") / QUERY):
        shutil.copyfile(file, root / file.name)
    shutil.copytree(shipped_directory("pipelines") / shown.KINDS, root / shown.KINDS)
    for file in sorted(EXAMPLES.glob("*.json.gz")):
        copied = root / "events" / file.name
        shutil.copy(file, copied)
        # Files are read by modification time: here the time of their last commit.
        with gzip.open(copied, "rt") as lines:
            arrived = max(json.loads(line)["committed_at"] for line in lines)
        moment = datetime.fromisoformat(arrived).timestamp()
        os.utime(copied, (moment, moment))
    shown.write_commits(root)
    shown.write_changes(root)
    _repeat(root / "events")
    console.print(
        f"project in {root}: 24 files of real commit events, some of which come twice, and a pipeline in each .toml file"
    )


def _repeat(events: Path) -> None:
    """Repeat each file's last events in the next, as a sender without an answer does."""
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
    """Draw the sessions over time; return the picture's path, or how to get a picture."""
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
    project = os.path.relpath(root)
    console.print(f'  {command} sql {project} "{_ACROSS}"     # tables of several pipelines', soft_wrap=True)
    console.print(f"  {command} status {project}")
    console.print(f"  {command} run {project} --once     # all pipelines again: nothing new, nothing twice")
    console.print(f"  {command} demo table{where}     # the folders of the last year, older ones expired")
    console.print(f"  {command} serve {project}     # a page of all pipelines, and their rows over HTTP")
    query, made = f"{project}/{QUERY}", f"{project}/{Path(QUERY).stem}.toml"
    console.print(
        f"  {command} init {project}/events --sql {query} -o {made}     # a query of Spark's SQL becomes one more pipeline",
        soft_wrap=True,
    )
    console.print(f"  {_airflow(root, command)}", soft_wrap=True)


def _airflow(root: Path, command: str) -> str:
    """Return the command by which Airflow gets the DAGs of the project; only a checkout brings Airflow itself."""
    checkout, project = shipped_directory("dags").parent, os.path.relpath(root)
    start = checkout / "infra" / "airflow" / "up.py"
    if not start.exists():
        return f"{command} files dags --to ~/airflow/dags     # DAGs of each pipeline and job, with SESSIONLAKE_CONFIGS={root}: docs/airflow.md"
    what = "Airflow, with a DAG for each job of each pipeline"
    if root == checkout / DIRECTORY:
        at = "" if Path.cwd() == checkout else f" -C {os.path.relpath(checkout)}"
        return f"make{at} airflow     # {what}"
    return f"{os.path.relpath(sys.executable)} {os.path.relpath(start)} --project {project}     # after `make setup`: {what}"


def _command() -> str:
    """Return the command for `sessionlake` as a user types it: its name if PATH finds this one, otherwise its path."""
    script = Path(sys.executable).with_name("sessionlake")
    on_path = shutil.which("sessionlake")
    if on_path and Path(on_path) == script:
        return "sessionlake"
    return os.path.relpath(script) if script.exists() else f"{sys.executable} -m sessionlake"
