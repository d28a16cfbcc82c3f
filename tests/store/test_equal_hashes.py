"""Keys that were made to have one hash, whatever the seed of a store is: they are found, and cost little."""

import secrets
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.identity import hash_bytes
from sessionlake.store.runs import Rows, Run, write_run
from tests.columnar.colliding import alike


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_keys_of_one_hash_are_found_and_not_all_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    keys, seed = pa.array(alike(parts), pa.binary()), secrets.randbits(63)
    hashes = hash_bytes(keys, seed)
    assert np.unique(hashes, return_counts=True)[1].max() == 2**parts
    stored = np.flatnonzero(np.arange(len(keys)) % 3 != 1)
    write_run(tmp_path / "run", Rows(keys.take(pa.array(stored)), pa.array([b"v"] * len(stored), pa.binary())), seed)
    compared, taken = [0], Run._taken

    def counted(self: Run, array: pa.Array, rows: Ints) -> pa.Array:
        compared[0] += len(rows)
        return taken(self, array, rows)

    monkeypatch.setattr(Run, "_taken", counted)
    asked = np.arange(len(keys))
    run = Run(tmp_path / "run")
    for _ in range(2):  # pages that are read for the first time are compared with their checksums
        which, rows = run.find(keys, hashes, asked)
        assert which.tolist() == stored.tolist()
        assert rows.tolist() == list(range(len(stored)))
        ones = {index: run.row_of(keys[index].as_py()) for index in range(0, len(keys), 1 + len(keys) // 500)}
        places = dict(zip(stored.tolist(), range(len(stored)), strict=True))
        assert ones == {index: places.get(index, -1) for index in ones}
    assert compared[0] < 2 * 16 * len(keys)
