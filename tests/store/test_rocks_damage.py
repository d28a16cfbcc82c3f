"""Damage within the files of a program's database: whoever reads there is told, and never takes it for the end."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sessionlake.errors import CorruptionError
from sessionlake.store.rocks import RocksSegments


@pytest.fixture
def filled(tmp_path: Path) -> RocksSegments:
    """Return a store with 4000 keys in a file, 3 of them overwritten in memory."""
    store = RocksSegments(tmp_path / "db")
    store.write({0: (KEYS, [b"old" * 20] * len(KEYS))}, {})
    store.close()
    store = RocksSegments(tmp_path / "db")
    store.write({0: (KEYS[:3], [b"new"] * 3)}, {})
    return store


KEYS = [b"key%05d" % number for number in range(4000)]


@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
@pytest.mark.parametrize(
    "read",
    [lambda s: s.get(0, KEYS), lambda s: s.items(0), lambda s: s.items(0, low=KEYS[10])],
    ids=["get", "items", "items from a key"],
)
def test_damage_is_no_end(
    tmp_path: Path, filled: RocksSegments, part: float, read: Callable[[RocksSegments], object]
) -> None:
    filled.close()
    file = max((tmp_path / "db").glob("*.sst"), key=lambda found: found.stat().st_size)
    content = bytearray(file.read_bytes())
    # Index and filter, which opening checks, follow the blocks of entries.
    content[int(content.index(b"rocksdb.") * 0.8 * part) or 1] ^= 0xFF
    file.write_bytes(content)
    store = RocksSegments(tmp_path / "db")
    with pytest.raises(CorruptionError):
        read(store)
    store.clear()  # no iterator keeps the database open
    assert store.segments == []
    store.close()
