"""The cost of keeping events (`pipeline.archive = true`) and whole rows ("all"): one map task's CPU and bytes, without Spark.

    python -m benchmarks.archive [--rows N] [--rounds N]

A map task decodes a file of N rows of 8 columns, of which the config reads 4, computes sessions' partials, and writes the archive to files.
Per kind of archive: CPU seconds (the least of the rounds, which are taken in turns) and bytes written. Prints the load, too.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from sessionlake.config.load import Config, parse_config
from sessionlake.engine.operator import BatchContext
from sessionlake.engine.outputs import Output
from sessionlake.engine.split import SplitTask
from sessionlake.operators.sessions.kind import Sessions
from sessionlake.sources.files import FileSource
from sessionlake.stream.ingest import ARCHIVED
from sessionlake.stream.outputs import archived_rows, same_rows
from sessionlake.stream.tables import archive_of
from sessionlake.stream.whole import WHOLE
from sessionlake.warehouse import schemas

FORMATS, ARCHIVES = ("json", "csv", "parquet"), (False, True, "all")


def main() -> None:
    """Measure, and print a line for each format and archive."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"{options.rows:,} rows, {options.rounds} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        for format_ in FORMATS:
            measure(Path(folder) / format_, format_, options.rows, options.rounds)


def measure(root: Path, format_: str, rows: int, rounds: int) -> None:
    """Print the costs of one format."""
    (root / "events").mkdir(parents=True)
    write(root / "events" / f"rows.{format_}", format_, rows)
    tasks = {archive: task_of(root, format_, archive) for archive in ARCHIVES}
    seconds: dict[object, list[float]] = {archive: [] for archive in ARCHIVES}
    for _ in range(rounds + 1):
        for archive, task in tasks.items():
            began = time.process_time()
            for _ in task.run(files(root)):
                pass
            seconds[archive].append(time.process_time() - began)
    for archive in ARCHIVES:
        written = sum(file.stat().st_size for file in (root / str(archive)).rglob("*.parquet"))
        least = min(seconds[archive][1:])
        each = written / (rounds + 1) / rows
        print(
            f"{format_:8} archive = {archive!s:6} {least:.3f} s CPU, {least / rows * 1e6:.2f} us and {each:.1f} B a row"
        )


def write(file: Path, format_: str, rows: int) -> None:
    """Write rows of 8 columns, as a shop's clicks have them; all are drawn from one seed."""
    draw = np.random.default_rng(1)
    names = ("/start", "/cart", "/search?q=shoes", "/products/1204", "/checkout")
    table = pa.table(
        {
            "user_id": pa.array([f"user-{n}" for n in draw.integers(0, rows // 10, rows)]),
            "time_us": draw.integers(1_700_000_000_000_000, 1_700_003_600_000_000, rows),
            "type": pa.array(["view", "view", "view", "buy"]).take(pa.array(draw.integers(0, 4, rows))),
            "price": draw.integers(100, 100_000, rows) / 100,
            "page": pa.array(names).take(pa.array(draw.integers(0, len(names), rows))),
            "country": pa.array(["DE", "AT", "FR", "IT"]).take(pa.array(draw.integers(0, 4, rows))),
            "load_ms": draw.integers(1, 4000, rows),
            "campaign": pa.array([f"c{n:08x}" for n in draw.integers(0, 2**32, rows)]),
        }
    )
    if format_ == "json":
        file.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    elif format_ == "csv":
        pcsv.write_csv(table, file)
    else:
        pq.write_table(table, file)


def task_of(root: Path, format_: str, archive: bool | str) -> SplitTask:  # noqa: FBT001
    """Return the map task of sessions with some kind of archive."""
    config = parse_config(
        {
            "pipeline": {"name": "archive", "warehouse": "warehouse", "archive": archive},
            "source": {"kind": "files", "path": "events", "format": format_},
            "event": {"key": "user_id", "time": "time_us", "time_unit": "us"},
            "session": {"gap": "30 minutes", "grace": "1 hour", "retention": "1 day"},
            "aggregates": {"n": "count()", "spent": "sum(price)", "buys": "count_if(type = 'buy')"},
        },
        root,
    )
    return SplitTask(
        kind_of(config).operator(), BatchContext(0, "bench", {}, 1_700_003_600_000_000), outputs(root, config), 4
    )


def kind_of(config: Config) -> Sessions:
    """Return the config's operator; the columns' types are those of the files, and no Spark is asked."""
    return Sessions.make(config, {"events": FileSource(None, config)}, None)  # type: ignore[arg-type,dict-item]


def outputs(root: Path, config: Config) -> tuple[Output, ...]:
    """Return the archive's tables, in a folder of their own for each kind of archive."""
    folder = root / str(config.pipeline.archive)
    folder.mkdir()
    return (
        Output(WHOLE, schemas.SOURCE_ROWS, str(folder), schemas.SOURCE_ROWS_SCHEMA, same_rows),
        Output(ARCHIVED, schemas.EVENTS, str(folder), archive_of(kind_of(config)), archived_rows),
    )


def files(root: Path) -> list[pa.RecordBatch]:
    """Return a batch's rows: the one file."""
    (file,) = (root / "events").iterdir()
    return [pa.RecordBatch.from_pydict({"path": [str(file)]})]


if __name__ == "__main__":
    main()
