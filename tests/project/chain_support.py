"""A pipeline of sessions and those that read its results, their events, and the results computed by one query of all rows in front."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
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
AS_DAYS = "select hour, big = 'true', sessions, revenue, longest from groups_live order by 1, 2"


def results_of(front: str, rows: str = "changes") -> str:
    """Return the section [source] of a pipeline behind another one."""
    return f"""\
[source]
kind = "results"
of = "{front}"
rows = "{rows}"

"""


def days_of(time: str, big: str, revenue: str, longest: str) -> str:
    """Return the config of groups of the rows of `clicks`, by their hour and a condition."""
    return f"""\
{results_of("clicks")}[event]
key = ["hour", "big"]

[event.columns]
hour = "date_trunc('hour', {time})"
big = "{big}"

[group]

[aggregates]
sessions = "count()"
revenue = "sum({revenue})"
longest = "max({longest})"
"""


def days_sql(view: str, time: str, big: str, revenue: str, longest: str) -> str:
    """Return the query of the rows of `clicks` that the groups of `days_of` equal, as AS_DAYS shows them."""
    hour = f"strftime({time} at time zone 'UTC', '%Y-%m-%d %H:00:00.000000Z')"
    return f"select {hour}, {big}, count(*), sum({revenue}), max({longest}) from {view} group by 1, 2 order by 1, 2"


def copy_of(*columns: str) -> str:
    """Return the config of a table of the rows of `clicks`."""
    return f"""\
{results_of("clicks")}[table]
order = "offset"
columns = [{", ".join(f'"{name}"' for name in columns)}]
"""


_SESSIONS = ("session_end", "event_count > 2", "revenue", "longest")
DAYS = days_of(*_SESSIONS)
FOLLOWED = copy_of("event_count", "revenue", "longest")
HOURS = f"""\
{results_of("clicks", "final")}[window]
kind = "tumbling"
size = "1 hour"
retention = "30 days"

[aggregates]
sessions = "count()"
revenue = "sum(revenue)"

[emit]
early = "batch"
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
    return [tuple(row) for row in query_tables(config, text, 100_000)[1]]


def grouped(root: Path) -> Rows:
    return query(load_config(root / "clicks.toml"), days_sql("sessions_live", *_SESSIONS))


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


def values_of(file: Path) -> set[Any]:
    """Return all values of a data file's texts."""
    table = pq.read_table(file)
    texts = (
        column for column in table.columns if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type)
    )
    return {value for column in texts for value in column.unique().to_pylist()}
