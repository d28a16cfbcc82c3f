"""The events of all peers: those of `benchmarks.synthetic`, times cut to milliseconds, in Parquet files; a join's in two folders."""

import os
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.synthetic import BASE_US, write_events

LATE_S = (60, 1200)
"""How late late events are. It is less than a batch covers, so that windows close in each batch but the first."""


def write_inputs(folder: Path, batches: int, events: int, users: int, files_per_batch: int) -> None:
    """Write folders events, left and right: left has the events of even offsets, right the others."""
    raw = folder / "raw"
    write_events(raw, batches, events, users, files_per_batch, late_s=LATE_S)
    for name in ("events", "left", "right"):
        (folder / name).mkdir(exist_ok=True)
    for file in sorted(raw.iterdir()):
        table = pq.read_table(file)
        millis = pc.floor_temporal(table["ts"], unit="millisecond")
        table = table.set_column(1, "ts", millis).append_column(
            "ms", millis.cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        )
        odd = pc.equal(pc.bit_wise_and(table["offset"], 1), 1)
        for name, rows in (("events", table), ("left", table.filter(pc.invert(odd))), ("right", table.filter(odd))):
            pq.write_table(rows, folder / name / file.name)
        file.unlink()
    raw.rmdir()


def write_stored(folder: Path, batches: int, users: int, files_per_batch: int) -> None:
    """Write folder events: in each batch an event of every user, in the hours before the others' first one."""
    events = folder / "events"
    events.mkdir()
    for number in range(batches * files_per_batch):
        hour, part = divmod(number, files_per_batch)
        of_hour = np.arange(users * part // files_per_batch, users * (part + 1) // files_per_batch)
        millis = np.full(len(of_hour), BASE_US // 1000 - (batches - hour) * 3_600_000)
        table = pa.table(
            {
                "key": pa.array(np.char.add("user-", of_hour.astype(str))),
                "ts": pa.array(millis * 1000).cast(pa.timestamp("us", "UTC")),
                "amount": np.ones(len(of_hour), np.int64),
                "page": pa.repeat("/p/0", len(of_hour)),
                "offset": of_hour,
                "ms": millis,
            }
        )
        file = events / f"before-{number:05d}.parquet"
        pq.write_table(table, file)
        # Streams read files in the order of their times.
        moment = time.time() // 1000 * 1000 - 10_000 + number
        os.utime(file, (moment, moment))


def write_lines(source: Path, target: Path) -> None:
    """Write key, milliseconds and amount of all files, tab-separated, in their order."""
    files = [str(file) for file in sorted(source.iterdir())]
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files).select("key", "ms", "amount")
        rows.write_csv(str(target), sep="\t", header=False)
