"""Stored state from which shards restore their stores: parts of distinct keys each, on disk until they are loaded.

A shard's whole state in memory would be several times its size: as it comes, as rows, sorted, and as writes (docs/decisions/0049).
"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

import pyarrow as pa

from sessionlake.columnar.keys import by_shard, shard_of
from sessionlake.columnar.newest import newest
from sessionlake.config.paths import make_private
from sessionlake.engine.exchange import from_payload, read_wire
from sessionlake.errors import StoreError

RESTORE = "restore"
"""The kind of the wire rows of stored state, before the part's number."""
_PART_BYTES, _MOST_PARTS = 16 << 20, 64
"""Bytes in the tables' files for which a shard's state gets another part, some 800,000 sessions of two aggregates, and how many parts at most.

The bound is there because Spark's estimate of a query with joins may be far too large.
"""


def parts_of(state_bytes: int, shards: int) -> int:
    """Return into how many parts the state of each shard goes, given the bytes of all of it in the tables' files.

    >>> parts_of(1_000, 8), parts_of(1 << 30, 8), parts_of(1 << 60, 8)
    (1, 9, 64)
    """
    return min(1 + state_bytes // (shards * _PART_BYTES), _MOST_PARTS)


def handed_pieces(
    rows: Iterable[pa.RecordBatch], restoring: frozenset[int], shards: int, parts: int
) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield rows with a column `key` as wire pieces for the restored shards; a key is in a single part."""
    for batch in rows:
        table = pa.Table.from_batches([batch])
        # A hash modulo shards x parts is, modulo shards, the shard.
        for place, _, piece in by_shard(RESTORE, table, shard_of(batch["key"], shards * parts)):
            part, shard = divmod(place, shards)
            if shard in restoring:
                yield shard, f"{RESTORE} {part}", piece


def place_of(shards: int) -> str:
    """Return, as SQL over wire rows of `handed_pieces`, a number from 0 on for each part of each shard."""
    return f"shard + {shards} * cast(substring(kind, {len(RESTORE) + 2}) as int)"


def merged_pieces(batches: Iterable[pa.RecordBatch], folder: Path) -> Iterator[tuple[int, str, pa.Table]]:
    """Yield the wire pieces of whole parts with the newest version of each row alone; `folder` is for a file meanwhile."""
    with closing(HandedIn(folder)) as handed:
        read_wire(batches, handed.take)
        yield from handed.pieces()


class HandedIn:
    """A task's wire rows of `handed_pieces`, in an unnamed file: a kill leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._places: dict[int, dict[int, list[tuple[int, int]]]] = {}

    def take(self, shard: int, kind: str, payload: pa.Buffer) -> bool:
        """Take a wire row, and say whether it is handed-in state. StoreError if it can't be written."""
        name, _, part = kind.partition(" ")
        if name != RESTORE or not part:
            return False
        with self._naming_the_folder():
            if self._file is None:
                make_private(self._folder)
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 (`close` closes it)
            place = self._file.tell()
            self._file.write(payload)
        self._places.setdefault(shard, {}).setdefault(int(part), []).append((place, payload.size))
        return True

    def parts(self, shard: int) -> Iterator[pa.Table]:
        """Yield the rows of each part of a shard that was handed any; each is read when it is asked for. StoreError as of `take`.

        Only the newest of several versions of a row is returned.
        """
        return (rows for _, rows in self._parts(shard))

    def pieces(self) -> Iterator[tuple[int, str, pa.Table]]:
        """Yield all parts as `handed_pieces` does, in one piece each; none without rows."""
        for shard in self._places:
            yield from ((shard, f"{RESTORE} {part}", rows) for part, rows in self._parts(shard) if rows.num_rows)

    def _parts(self, shard: int) -> Iterator[tuple[int, pa.Table]]:
        if self._file is None:
            return
        with self._naming_the_folder():
            self._file.flush()
        number = self._file.fileno()
        for part, places in sorted(self._places.get(shard, {}).items()):
            pieces = (from_payload(pa.py_buffer(os.pread(number, size, place))) for place, size in places)
            yield part, newest(pieces)

    @contextmanager
    def _naming_the_folder(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"store: a shard's state can't be written to {str(self._folder)!r} ({error}); mend that and start again"
            ) from error

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
