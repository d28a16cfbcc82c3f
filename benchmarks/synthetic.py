"""Synthetic events: bursts of about five events a session, slightly out of order, three in a hundred up to two hours late."""

from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import write_deltalake

BASE_US = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
EVENTS_PER_SESSION = 5
SECONDS_PER_BATCH = 2160.0
GAP, GRACE, RETENTION = "30 minutes", "2 hours", "1 day"
"""The events below are never late for these: the comparisons count on it."""


def write_events(
    directory: Path,
    batches: int,
    events: int,
    users: int,
    files_per_batch: int,
    seed: int = 7,
    late_s: tuple[float, float] = (600, 7200),
) -> None:
    """Write batches x files_per_batch Parquet files (key, ts, amount, page, offset), in order of arrival.

    Each batch covers 36 minutes of event time, as the prototypes' events do. `late_s` says how late the late ones are.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    wanted = batches * events
    sessions = wanted // (EVENTS_PER_SESSION) + 1
    sizes = rng.poisson(EVENTS_PER_SESSION - 1, sessions) + 1
    start = rng.uniform(0, SECONDS_PER_BATCH * batches, sessions)
    gaps = rng.exponential(60, sizes.sum())
    ends = np.cumsum(sizes)
    running = np.cumsum(gaps)
    time = np.repeat(start, sizes) + running - np.repeat(running[ends - sizes], sizes)
    user = np.repeat(rng.integers(0, users, sessions), sizes)
    arrival = time + rng.exponential(5, time.size)
    late = rng.random(time.size) < 0.03
    arrival[late] += rng.uniform(*late_s, late.sum())
    order = np.argsort(arrival)[:wanted]
    cuts = np.linspace(0, len(order), batches * files_per_batch + 1).astype(int)
    for i, (a, b) in enumerate(pairwise(cuts)):
        rows = order[a:b]
        table = pa.table(
            {
                "key": pa.array(np.char.add("user-", user[rows].astype(str))),
                "ts": pa.array(BASE_US + (time[rows] * 1e6).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
                "amount": rng.integers(1, 100, len(rows)),
                "page": pa.array(np.char.add("/p/", rng.integers(0, 500, len(rows)).astype(str))),
                "offset": np.arange(a, b),
            }
        )
        pq.write_table(table, directory / f"part-{i:05d}.parquet")


def write_copies(events: Path, directory: Path, share: float) -> None:
    """Write files of events again, each with copies of a share of its rows, half of which are of the file before."""
    directory.mkdir(parents=True, exist_ok=True)
    rng, before = np.random.default_rng(3), None
    for file in sorted(events.iterdir()):
        table = pq.read_table(file)
        some = [one.take(rng.integers(0, len(one), int(len(one) * share / 2))) for one in (table, before or table)]
        pq.write_table(pa.concat_tables([table, *some]), directory / file.name)
        before = table


_FLAT = {
    "key": "key",
    "ts": "strftime(make_timestamp(epoch_us(ts)), '%Y-%m-%dT%H:%M:%S.%fZ')",
    "amount": "amount",
    "page": "page",
    "offset": '"offset"',
}
"""The columns of an event as JSON has them, with their SQL."""
IN_LIST = 5
"""The events of a row of `write_lists`."""


def write_json(events: Path, directory: Path) -> None:
    """Write each Parquet file of events as JSON lines with ISO 8601 times, in the same order."""
    fields = ", ".join(f'{sql} AS "{name}"' for name, sql in _FLAT.items())
    _write_lines(events, directory, f"SELECT {fields} FROM rows")


def write_fields(events: Path, directory: Path) -> None:
    """Write the same with key, time and amount as fields of objects: user.id, sent.at, cart.amount."""
    objects = {"user": ("id", "key"), "sent": ("at", "ts"), "cart": ("amount", "amount")}
    fields = [f"{{'{field}': {_FLAT[column]}}} AS \"{name}\"" for name, (field, column) in objects.items()]
    _write_lines(events, directory, f'SELECT {", ".join(fields)}, page, "offset" FROM rows')


def write_lists(events: Path, directory: Path) -> None:
    """Write five events in a row, in its list `items`."""
    element = ", ".join(f"'{name}': {sql}" for name, sql in _FLAT.items())
    number = f"(row_number() OVER () - 1) // {IN_LIST}"
    numbered = f"SELECT {number} AS number, row_number() OVER () AS place, {{{element}}} AS item FROM rows"
    _write_lines(
        events,
        directory,
        f"SELECT list(item ORDER BY place) AS items FROM ({numbered}) GROUP BY number ORDER BY number",
    )


def _write_lines(events: Path, directory: Path, query: str) -> None:
    """Write a query's rows of each Parquet file, which it calls `rows`, as JSON lines."""
    directory.mkdir(parents=True, exist_ok=True)
    for file in sorted(events.glob("*.parquet")):
        rows = f"WITH rows AS (SELECT * FROM read_parquet('{file}')) {query}"
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({rows}) TO '{directory / file.stem}.json' (FORMAT json)")


def write_sessions(directory: Path, sessions: int) -> None:
    """Write one event for each of as many users, at the time at which the other events begin."""
    directory.mkdir(parents=True, exist_ok=True)
    for i, at in enumerate(range(0, sessions, 500_000)):
        users = pa.array(range(at, min(sessions, at + 500_000)))
        keys = pc.binary_join_element_wise("user-", users.cast(pa.string()), "")
        times = pa.array([BASE_US] * len(users)).cast(pa.timestamp("us", "UTC"))
        amounts = pa.array([1] * len(users))
        pq.write_table(pa.table({"key": keys, "ts": times, "amount": amounts}), directory / f"part-{i:05d}.parquet")


def write_table(directory: Path, rows: int) -> None:
    """Write a Delta table (id, weight) with a row for each of so many keys of `write_events`."""
    for first in range(0, rows, 1_000_000):
        numbers = np.arange(first, min(first + 1_000_000, rows))
        keys = np.char.add("user-", numbers.astype(str))
        write_deltalake(directory, pa.table({"id": keys, "weight": numbers % 100}), mode="append")
