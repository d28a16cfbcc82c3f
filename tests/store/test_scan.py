"""Many keys at once: a scan of the whole segment finds what looking each key up does, and tells damage."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.errors import CorruptionError
from sessionlake.store import rocks
from sessionlake.store.rocks import RocksSegments
from tests.support import examples

NAMES = [b"", b"\0", b"a", b"a\0", b"b", "ü".encode(), b"\xff" * 3]
names = st.sampled_from(NAMES)
writes = st.dictionaries(
    st.integers(0, 3), st.dictionaries(names, st.none() | st.binary(max_size=3), min_size=1), min_size=1
)
steps = st.lists(writes | st.just("reopen") | st.integers(0, 2), max_size=8)


def looked_up(store: RocksSegments, segment: int, keys: list[bytes]) -> list[bytes | None]:
    with patch.object(rocks, "_MANY_KEYS", 1 << 60):
        return store.get(segment, keys)


def scanned(store: RocksSegments, segment: int, keys: list[bytes]) -> list[bytes | None]:
    with patch.object(rocks, "_MANY_KEYS", 0), patch.object(rocks, "_SCAN_ENTRIES_PER_KEY", 1 << 60):
        return store.get(segment, keys)


@examples(25)
@given(steps, st.sets(names), st.randoms(use_true_random=False))
def test_scan_finds_what_looking_up_does(history: list[object], wanted: set[bytes], chance: object) -> None:
    """Over keys that were overwritten, deleted or never there, in memory and in files, beside dropped segments."""
    keys = sorted(wanted)
    chance.shuffle(keys)  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as directory:
        store = RocksSegments(Path(directory) / "db")
        for step in history:
            if step == "reopen":
                store.close()
                store = RocksSegments(Path(directory) / "db")
            elif isinstance(step, int):
                store.drop_before(step)
            elif isinstance(step, dict):
                store.write({segment: (list(puts), list(puts.values())) for segment, puts in step.items()}, {})
        for segment in store.segments:
            assert scanned(store, segment, keys) == looked_up(store, segment, keys)
        store.close()


@pytest.fixture
def filled(tmp_path: Path) -> RocksSegments:
    """Return a store with 4000 keys in a file, 100 of them overwritten in memory."""
    store = RocksSegments(tmp_path / "db")
    store.write({0: (KEYS, [b"old" * 20] * len(KEYS))}, {})
    store.close()
    store = RocksSegments(tmp_path / "db")
    store.write({0: (KEYS[:100], [b"new"] * 100)}, {})
    return store


KEYS = [b"key%05d" % number for number in range(4000)]


@pytest.mark.parametrize(("keys", "scans"), [(1639, 0), (1640, 1), (4000, 1)])
def test_scans_where_few_entries_come_on_a_key(filled: RocksSegments, keys: int, scans: int) -> None:
    with patch.object(RocksSegments, "_scanned", side_effect=filled._scanned) as scan:
        assert filled.get(0, KEYS[:keys]) == [b"new"] * 100 + [b"old" * 20] * (keys - 100)
    assert scan.call_count == scans
    filled.close()


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
