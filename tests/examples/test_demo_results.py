"""The demo's results beside DuckDB, which computes them of the shipped events in one query each."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.cli.together import run_all_once
from sessionlake.config.project import Project, load_project
from sessionlake.examples.demo import prepare
from sessionlake.examples.shown import PIPELINES as WINDOWS
from sessionlake.serve.queries import Answer, answer_project_sql

pytestmark = pytest.mark.slow

_EVENTS = """
events as (select *, substr(filename, -10, 3)::int as file
           from read_json('{root}/events/*.json.gz', filename = true, columns = {{
               event_id: 'varchar', author: 'varchar', authored_at: 'timestamptz', repo: 'varchar', top: 'varchar', ext: 'varchar',
               added: 'bigint', deleted: 'bigint'}})
           where authored_at is not null),
once as (select distinct on (event_id) * from events order by event_id, file),
taken as (select * from once where event_id not in (select event_id from {name}.late_events)
          and event_id not in (select raw->>'event_id' from {name}.dead_letters where reason = 'beyond retention'))
"""
_APART = "(select count(*) from (from sent except all from wanted union all (from wanted except all from sent)))"
_COUNTS = f"select (select count(*) from sent), {_APART}"

Check = Callable[[int, str], None]


@pytest.fixture(scope="module")
def check(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Run the demo's pipelines to the end of their input; the check is that more rows than a number were sent, and all of them wanted."""
    root = tmp_path_factory.mktemp("demo")
    prepare(root, Console(quiet=True))
    project: Project = load_project(root)
    ended = run_all_once(spark, project, Event(), drained=WINDOWS)
    assert {name: one.error for name, one in ended.items() if one.error is not None} == {}

    def compare(least: int, query: str) -> None:
        texts = {f"<events of {name}>": _EVENTS.format(root=root, name=name) for name in project.members}
        for place, text in {**texts, "<root>": str(Path(root))}.items():
            query = query.replace(place, text)
        answer: AbstractContextManager[Answer] = answer_project_sql(project.configs.values(), query, allow_files=True)
        with answer as found:
            ((sent, apart),) = found.rows
        assert sent > least
        assert apart == 0

    return compare


def test_sittings(check: Check) -> None:
    check(
        8_000,
        f"""
        with <events of commits>,
        used as (select *, coalesce(authored_at - lag(authored_at) over (partition by author order by authored_at) > interval 1 hour, true) apart
                 from taken where author is not null and ext <> '.parquet'),
        numbered as (select *, sum(apart::int) over (partition by author order by authored_at range unbounded preceding) number from used),
        wanted as (select author, min(authored_at), max(authored_at), count(*), sum(added)::bigint, sum(deleted)::bigint, count(distinct repo),
                          arg_min(top, (authored_at, event_id)), arg_max(top, (authored_at, event_id)), count(distinct ext),
                          (sum(added) filter (where ext in ('.md', '.rst', '.txt')))::bigint, max(added + deleted)
                   from numbered group by author, number),
        sent as (select session_key, session_start, session_end, event_count, lines_added, lines_deleted, repos,
                        first_top, last_top, file_types, text_added, largest_change from commits.sessions_live)
        {_COUNTS}
    """,
    )


def test_days_follow_the_sittings(check: Check) -> None:
    """The sums of doubles may be in another order, so they are compared as rounded."""
    check(
        2_000,
        f"""
        with of_day as (select date_trunc('day', session_start at time zone 'UTC') d, *, (epoch(session_end) - epoch(session_start)) / 60 as lasted
                        from commits.sessions_live),
        wanted as (select strftime(d, '%Y-%m-%d %H:%M:%S.000000Z'), count(*), count(*), count(distinct session_key), sum(lines_added)::bigint,
                          round(max(lasted), 6), round(median(lasted), 6) from of_day group by d),
        sent as (select group_key, event_count, sittings, authors, lines_added, round(longest_minutes, 6), round(typical_minutes, 6)
                 from days.groups_live)
        {_COUNTS}
    """,
    )


def test_weeks_with_what_is_looked_up(check: Check) -> None:
    check(
        1_000,
        f"""
        with <events of weeks>,
        used as (select taken.*, kind from taken left join read_csv('<root>/kinds/*') using (ext) where repo is not null),
        wanted as (select repo, time_bucket(interval 7 days, authored_at, timestamptz '1970-01-05 00:00:00+00') s, s + interval 7 days, count(*),
                          sum(added)::bigint, (sum(added) filter (where kind = 'code'))::bigint, count(distinct author)
                   from used group by repo, s),
        sent as (select window_key, window_start, window_end, event_count, lines_added, code_added, authors from weeks.windows_live)
        {_COUNTS}
    """,
    )


def test_bursts_are_sent_once_they_are_closed(check: Check) -> None:
    """Of the windows that end at an event. The second of two batches gives its events to windows that its beginning had not closed."""
    check(
        12_000,
        f"""
        with <events of bursts>,
        used as (select author, authored_at t, added, file >= 12 as second from once where author is not null),
        mark as (select watermark w from bursts.batches where batch_id = 0),
        last as (select max(watermark) w from bursts.batches),
        ends as (select distinct author, t, t + interval 30 days < (select w from mark) closed from used
                 where not second or t + interval 30 days >= (select w from mark)),
        wanted as (select e.author, e.t - interval 7 days, e.t, count(*), sum(u.added)::bigint, 1
                   from ends e join used u on u.author = e.author and u.t between e.t - interval 7 days and e.t and not (u.second and e.closed)
                   where e.t + interval 30 days < (select w from last) group by e.author, e.t),
        sent as (select window_key, window_start, window_end, event_count, lines_added, authors from bursts.windows_live where at_event)
        {_COUNTS}
    """,
    )
