"""A store whose disk is full: one line within seconds, and nothing lost once there is room."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessionlake.engine.error_text import error_in
from sessionlake.errors import DiskFullError, ExitCode
from sessionlake.store.disk_space import free_bytes, require_disk_space
from sessionlake.store.files import FileSegments
from sessionlake.store.rocks import RocksSegments
from tests import disks

MB = 1_000_000
TOLD = r"store: '.*/p/0' has \d+ MB free, compactions need \d+; make room and start again"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with disks.disk(tmp_path / "disk", 24) as path:
        yield path


def written(path: Path, number: int, *, fill_to: int | None = None) -> None:
    """Write a thousand values of 1 kB as one commit; `fill_to` is what another file leaves free beforehand, with the store open."""
    db = RocksSegments(path)
    try:
        if fill_to is not None:
            (path.parents[1] / "other").write_bytes(bytes(free_bytes(path) - fill_to))
        keys = [b"%08d" % key for key in range(number * 1000, number * 1000 + 1000)]
        db.write({1: (keys, [os.urandom(1000) for _ in keys])}, {"commit": b"%d" % number})
    finally:
        db.close()


def writes(path: Path, first: int, end: int, fill_to: int) -> None:
    for number in range(first, end):
        written(path, number, fill_to=fill_to if number == first else None)


@pytest.mark.parametrize("free", [2 * MB, MB // 2], ids=["merging", "writing"])
def test_a_disk_that_fills_beside_an_open_store_ends_in_one_line(disk: Path, free: int) -> None:
    path = disk / "p" / "0"
    for number in range(3):
        written(path, number)
    with pytest.raises(DiskFullError, match=TOLD) as caught:
        writes(path, 3, 9, free)
    assert caught.value.exit_code == ExitCode.FAILED
    assert isinstance(error_in(f"sessionlake.errors.DiskFullError: {caught.value}"), DiskFullError)
    (disk / "other").unlink()
    db = RocksSegments(path)
    try:
        last = int(db.meta("commit") or b"")
        assert 2 <= last < 9
        assert len(db.items(1)) == 1000 * (last + 1)
    finally:
        db.close()
    written(path, last + 1)


def test_a_write_of_a_shard_that_does_not_fit_leaves_nothing(disk: Path) -> None:
    path = disk / "p" / "0"
    db = FileSegments(path)
    values = [os.urandom(1000) for _ in range(1000)]
    db.write({1: ([b"%04d" % key for key in range(1000)], values)}, {"commit": b"0"})
    (disk / "other").write_bytes(bytes(free_bytes(path) - 2 * MB))
    with pytest.raises(DiskFullError, match=r"has \d MB free, and a batch needs more; make room and start again"):
        db.write({number: ([b"%04d" % key for key in range(1000)], values) for number in (1, 2, 3)}, {"commit": b"1"})
    assert len([*path.glob("*.run")]) == 1
    (disk / "other").unlink()
    assert (db.segments, db.meta("commit"), [value for _, value in db.items(1)]) == ([1], b"0", values)
    db.write({2: ([b"a"], [b"1"])}, {"commit": b"1"})
    assert (db.segments, db.meta("commit")) == ([1, 2], b"1")
    db.close()


def test_a_store_needs_its_largest_file_free_to_be_opened(disk: Path) -> None:
    path = disk / "p" / "0"
    path.mkdir(parents=True)
    (path / "000001.sst").write_bytes(bytes(8 * MB))
    (path / "000002.sst").write_bytes(bytes(MB))
    room = free_bytes(path)
    (disk / "other").write_bytes(bytes(room - 8 * MB - 8192))
    require_disk_space(path)
    with pytest.raises(DiskFullError, match=r"has 8 MB free, compactions need 75;"):
        require_disk_space(path, 67_000_000)
    (disk / "other").write_bytes(bytes(room - 7 * MB))
    with pytest.raises(DiskFullError, match=r"has 7 MB free, compactions need 8;"):
        require_disk_space(path)
