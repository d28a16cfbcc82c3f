"""A pipeline of sessions and those that read its results, their events, and the results computed by one query of all rows in front."""

import json
import random
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.operators.run import run
from sessionlake.serve.queries import query_tables
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables

HOUR = 3600
CLICKS = """\
[source]
kind = "files"
path = "events"
format = "json"

[event]
key = "user"
time = "at"
time_unit = "s"

[session]
gap = "30 minutes"
grace = "1 hour"
retention = "4 hours"

[aggregates]
revenue = "sum(price)"
longest = "max(price)"
"""
DAYS = """\
[source]
kind = "results"
of = "clicks"
rows = "changes"

[event]
key = ["hour", "big"]

[event.columns]
hour = "date_trunc('hour', session_end)"
big = "event_count > 2"

[group]

[aggregates]
sessions = "count()"
revenue = "sum(revenue)"
longest = "max(longest)"
"""
GROUPED = """
select strftime(session_end, '%Y-%m-%d %H:00:00.000000Z'), event_count > 2, count(*), sum(revenue), max(longest)
from clicks.sessions_live group by 1, 2 order by 1, 2
"""
SHOWN = "select hour, big = 'true', sessions, revenue, longest from groups_live order by 1, 2"
HOURS = """\
[source]
kind = "results"
of = "clicks"
rows = "final"

[window]
kind = "tumbling"
size = "1 hour"
retention_time = "30 days"

[aggregates]
sessions = "count()"
revenue = "sum(revenue)"

[emit]
early = "batch"
"""
FOLLOWED = """\
[source]
kind = "results"
of = "clicks"
rows = "changes"

[table]
order = "offset"
columns = ["event_count", "revenue", "longest"]
"""
Rows = list[tuple[Any, ...]]


def write(root: Path, number: int) -> None:
    """Write a file: two hours of events of five users, from one hour before the last file's end on; some come late."""
    rng = random.Random(number)
    base = 1_700_000_000 + number * HOUR
    rows = [
        {"user": f"u{rng.randrange(5)}", "at": base + rng.randrange(2 * HOUR), "price": rng.randrange(100) / 8}
        for _ in range(40)
    ]
    rows += [{"user": "late", "at": base - 3 * HOUR, "price": 1.5}] if number > 3 else []
    (root / "events" / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def query(config: Config, text: str) -> Rows:
    return [tuple(row) for row in query_tables(config, text, 1000)[1]]


def grouped(root: Path) -> Rows:
    text = GROUPED.replace("clicks.", "").replace("session_end, '%Y", "session_end at time zone 'UTC', '%Y")
    return query(load_config(root / "clicks.toml"), text)


def latest(root: Path) -> tuple[Rows, Rows]:
    """Return the table of the latest rows, and the rows in front."""
    of = "event_count, revenue, longest"
    start = "epoch_us(cast(session_start as timestamptz)) as start"
    table = query(load_config(root / "latest.toml"), f"select session_key, {start}, {of} from table_live order by 1, 2")
    return table, query(
        load_config(root / "clicks.toml"), f"select session_key, {start}, {of} from sessions_live order by 1, 2"
    )


def step(spark: SparkSession, root: Path, *names: str) -> None:
    for name in names:
        run(spark, load_config(root / f"{name}.toml"), once=True)


def finals(spark: SparkSession, root: Path, seen: dict[Any, Any]) -> Rows:
    """Return by user and hour what the sessions that were ever final add up to; `seen` are those of before."""
    clicks = load_config(root / "clicks.toml")
    watermark = last_batch(Tables.of(spark, clicks)).watermark_us
    assert watermark is not None
    rows = query(
        clicks, "select session_key, epoch_us(session_start), epoch_us(session_end), revenue from sessions_live"
    )
    closed = [row for row in rows if row[2] + 90 * 60 * 1_000_000 < watermark]
    seen |= dict.fromkeys(closed)
    hours: dict[tuple[str, int], list[float]] = {}
    for key, _, end, revenue in seen:
        hours.setdefault((key, end // (HOUR * 1_000_000)), []).append(revenue)
    return sorted((key, hour, len(all_), sum(all_)) for (key, hour), all_ in hours.items())


def in_windows(root: Path) -> Rows:
    text = "select window_key, epoch_us(window_start) // 3600000000, sessions, revenue from windows_live order by 1, 2"
    return query(load_config(root / "hours.toml"), text)
