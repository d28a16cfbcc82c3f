"""The room that identities take in a shard's store and in event_ids, and how fast a lost store gets them back: without Spark.

    python -m benchmarks.unique [--ids N]

Identities of events at several rates, a second of event time after the other, are put into an empty store as a restore does it. Prints, for
each rate, bytes an identity on disk after the store is closed, bytes an identity of a Parquet file with the columns of event_ids, and
the identities that a second of CPU takes.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sessionlake.store.files import FileSegments
from sessionlake.store.ids import Ids, segment_writes
from sessionlake.warehouse import schemas

RATES = (1, 10, 100, 1_000, 100_000)
HOUR_US = 3_600_000_000
KEYS = 20_000


def main() -> None:
    """Measure, and print a line for each rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=1_000_000)
    count = parser.parse_args().ids
    print(f"{'ids a second':>14}{'store B an id':>16}{'table B an id':>16}{'ids a CPU second':>18}")
    for rate in RATES:
        with tempfile.TemporaryDirectory() as folder:
            store, table, speed = measured(count, rate, Path(folder))
        print(f"{rate:14,}{store:16.1f}{table:16.1f}{speed:18,.0f}")


def measured(count: int, rate: int, folder: Path) -> tuple[float, float, float]:
    """Return the bytes an identity of a store and of a table, and the identities a second of CPU."""
    random = np.random.default_rng(7)
    time_us = np.sort(random.integers(0, count * 1_000_000 // rate, count)) + 1_700_000_000_000_000
    hashes = random.integers(-(2**63), 2**63 - 1, count)
    began = time.process_time()
    store = FileSegments(folder / "store")
    _, writes = Ids(store, HOUR_US).known(time_us, hashes)
    store.write(segment_writes(writes), {})
    store.close()
    spent = time.process_time() - began
    keys = [f"user-{number}" for number in random.integers(0, KEYS, count).tolist()]
    numbers = {"event_time": time_us, "id_hash": hashes, "batch_id": np.arange(count) * 10 // count}
    schema = schemas.event_ids(sided=False)
    columns = {"key": pa.array(keys), "commit_id": pa.repeat("0" * 32, count), **numbers}
    pq.write_table(
        pa.table([pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names], schema),
        folder / "ids.parquet",
    )
    used = sum(file.stat().st_size for file in (folder / "store").rglob("*") if file.is_file())
    return used / count, (folder / "ids.parquet").stat().st_size / count, count / spent


if __name__ == "__main__":
    main()
