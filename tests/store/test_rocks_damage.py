"""Damage within the files of a program's database: whoever reads there is told, and never takes it for the end."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Rdict

from sessionlake.errors import CorruptionError, DiskFullError, StoreHeldError
from sessionlake.store.directory import remove_store
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.rocks_view import RocksView, rocks_may_hold


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


@pytest.mark.parametrize("part", [0.01, 0.5, 0.99])
def test_a_search_for_keys_that_meets_damage_knows_nothing(tmp_path: Path, filled: RocksSegments, part: float) -> None:
    filled.close()
    path = tmp_path / "db"
    none = [b"nobody"]
    assert not rocks_may_hold(path, none, None)
    assert not rocks_may_hold(path, none, lambda keys: none[0] in keys.to_pylist())
    assert rocks_may_hold(path, KEYS[:1], None)
    assert rocks_may_hold(path, none, lambda keys: KEYS[-1] in keys.to_pylist())
    file = max(path.glob("*.sst"), key=lambda found: found.stat().st_size)
    content = bytearray(file.read_bytes())
    content[int(content.index(b"rocksdb.") * 0.8 * part) or 1] ^= 0xFF
    file.write_bytes(content)
    assert rocks_may_hold(path, none, lambda keys: none[0] in keys.to_pylist())
    # A removal takes this file first, and may be interrupted.
    (path / "CURRENT").unlink()
    assert rocks_may_hold(path, none, None)
    shutil.rmtree(path)
    assert not rocks_may_hold(path, none, None)


def killed(path: Path) -> None:
    """Write two segments in a process that is killed before it closes the store."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom sessionlake.store.rocks import RocksSegments\n"
        "store = RocksSegments(Path(sys.argv[1]))\n"
        "store.write({1: ([b'a'], [b'1'])}, {'commit_id': b'c1'})\n"
        "store.write({2: ([b'b'] , [b'2'])}, {'commit_id': b'c2'})\n"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)


def test_a_list_of_families_that_is_cut_is_damage(tmp_path: Path) -> None:
    killed(tmp_path / "whole")
    (manifest,) = (tmp_path / "whole").glob("MANIFEST-*")
    noticed = 0
    for length in range(1, manifest.stat().st_size, 7):
        path = tmp_path / str(length)
        shutil.copytree(tmp_path / "whole", path)
        os.truncate(path / manifest.name, length)
        try:
            store = RocksSegments(path)
        except CorruptionError:
            noticed += 1
            continue
        if store.meta("commit_id") == b"c2":
            assert [store.get(1, [b"a"]), store.get(2, [b"b"])] == [[b"1"], [b"2"]]
        store.close()
    assert noticed


def test_rows_of_earlier_writes_are_in_files_before_a_commit_has_its_id(tmp_path: Path) -> None:
    store = RocksSegments(tmp_path / "db")
    store.write({1: (KEYS, [b"v"] * len(KEYS))}, {})
    store.write({2: ([b"a"], [b"1"])}, {"commit_id": b"c"})
    for log in (tmp_path / "db").glob("*.log"):
        shutil.copy(log, tmp_path / log.name)
    assert sum(file.stat().st_size for file in (tmp_path / "db").glob("*.sst")) > len(KEYS) * 9
    store.close()


def test_a_view_waits_for_a_segment_that_a_commit_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of the families and that of the log, where RocksDB skips writes to families that it does not know."""
    store = RocksSegments(tmp_path / "db")
    store.write({1: ([b"a"], [b"1"])}, {"commit_id": b"c1"})
    listed, raced = Rdict.list_cf, []

    def list_cf(path: str, *more: object) -> list[str]:
        found = listed(path, *more)
        if not raced:
            raced.append(path)
            store.write({2: ([b"b"], [b"2"])}, {"commit_id": b"c2"})
        return found

    monkeypatch.setattr("sessionlake.store.database.Rdict.list_cf", list_cf)
    view = RocksView(tmp_path / "db")
    assert raced
    assert (view.meta("commit_id"), view.segments, view.get(2, [b"b"])) == (b"c2", [1, 2], [b"2"])
    store.close()


def test_a_store_is_one_owners_and_a_clear_that_fails_is_told_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p" / "0"
    store = RocksSegments(path)
    with pytest.raises(StoreHeldError):
        RocksSegments(path)
    with pytest.raises(StoreHeldError):
        remove_store(path)
    with monkeypatch.context() as patch:
        patch.setattr("sessionlake.store.rocks.require_disk_space", refuse)
        with pytest.raises(DiskFullError, match="no room"):
            store.clear()
        store.close()
    again = RocksSegments(path)
    assert again.segments == []
    again.close()


def refuse(path: Path) -> None:
    raise DiskFullError(f"no room at {path}")
