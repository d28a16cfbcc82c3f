"""The events of all peers: those of `benchmarks.synthetic`, times cut to milliseconds, in Parquet files; a join's in two folders."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.synthetic import write_events


def write_inputs(folder: Path, batches: int, events: int, users: int, files_per_batch: int) -> None:
    """Write folders events, left and right: left has the events of even offsets, right the others."""
    raw = folder / "raw"
    write_events(raw, batches, events, users, files_per_batch)
    for name in ("events", "left", "right"):
        (folder / name).mkdir()
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


def write_lines(source: Path, target: Path) -> None:
    """Write key, milliseconds and amount of all files, tab-separated, in their order."""
    files = [str(file) for file in sorted(source.iterdir())]
    with duckdb.connect() as connection:
        rows = connection.read_parquet(files).select("key", "ms", "amount")
        rows.write_csv(str(target), sep="\t", header=False)
