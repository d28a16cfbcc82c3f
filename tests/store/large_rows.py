"""Write rows with large keys into a store until a merge has taken them all; print the peak of anonymous memory in MB.

Run as `python -m tests.store.large_rows DIRECTORY ROWS KEY_BYTES`.
"""

import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import binary_array
from sessionlake.store import levels
from sessionlake.store.files import FileSegments


def anonymous_mb() -> float:
    """Return the anonymous memory of this process; mapped files are not in it, as the kernel takes their pages back."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1e3


class Peak:
    """The largest anonymous memory while it is entered, looked at each two milliseconds."""

    def __enter__(self) -> Self:
        self.mb, self._ended = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._ended.wait(0.002):
            self.mb = max(self.mb, anonymous_mb())

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def keys_of(numbers: range, size: int) -> pa.Array:
    """Return keys of some bytes that begin with numbers, without an object for each."""
    names = np.full((len(numbers), size), ord("k"), np.uint8)
    names[:, :6] = np.array([b"%06d" % number for number in numbers], "S6").view(np.uint8).reshape(-1, 6)
    return binary_array(names.reshape(-1), np.arange(len(numbers) + 1) * size)


def main() -> None:
    directory, rows, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    batches = levels.FAN
    with Peak() as peak, closing(FileSegments(directory / "p" / "0")) as db:
        for batch in range(batches + 2):
            keys = keys_of(range(batch, rows, batches) if batch < batches else range(1), size)
            db.write({1: (keys, pa.array([b"v"] * len(keys), pa.binary()))}, {"commit": b"%d" % batch})
    sys.stdout.write(f"{peak.mb:.0f}\n")


if __name__ == "__main__":
    main()
