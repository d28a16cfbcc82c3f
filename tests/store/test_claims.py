"""What was measured of rocksdict 0.3.29 before the stores were designed (F1 to F5), as tests: the code rests on it.

A newer rocksdict that fails one of these may let something be simplified, or breaks something that is named here.
"""

import re
import time
from pathlib import Path
from typing import Any

import pytest
from rocksdict import AccessType, DBCompactionStyle, Options, Rdict, ReadOptions, WriteBatch

from sessionlake.store.database import store_options


def options() -> Options:
    made = Options(raw_mode=True)
    made.create_if_missing(create_if_missing=True)
    made.create_missing_column_families(create_missing_cfs=True)
    return made


def opened(path: Path, *families: str, access: Any = None) -> Rdict:
    names = ("default", *families)
    return Rdict(
        str(path),
        options=options(),
        column_families={name: options() for name in names},
        access_type=access or AccessType.read_write(),
    )


def numbered(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"%04d" % n, b"v%d" % n) for n in range(count)]


@pytest.fixture
def db(tmp_path: Path) -> Any:
    made = opened(tmp_path / "db")
    for key, value in numbered(10):
        made[key] = value
    yield made
    made.close()


class TestTtlDatabase:
    """F1: `AccessType.with_ttl`."""

    def test_appends_four_bytes_that_a_plain_opening_shows(self, tmp_path: Path) -> None:
        db = opened(tmp_path / "db", access=AccessType.with_ttl(100))
        db[b"a"] = b"v"
        assert db[b"a"] == b"v"
        db.close()
        plain = opened(tmp_path / "db")
        assert len(plain[b"a"]) == len(b"v") + 4
        plain.close()

    def test_expired_values_are_returned_until_a_compaction(self, tmp_path: Path) -> None:
        db = opened(tmp_path / "db", access=AccessType.with_ttl(1))
        db[b"a"] = b"v"
        db.flush()
        expired = time.time() + 2.1  # RocksDB's clock has whole seconds, and can't be set
        while time.time() < expired:
            time.sleep(0.05)
        assert db.get(b"a") == b"v"
        assert list(db.items()) == [(b"a", b"v")]
        db.compact_range(None, None)
        assert db.get(b"a") is None
        db.close()


@pytest.mark.slow
@pytest.mark.parametrize("style", ["level", "universal"])
def test_option_ttl_drops_no_row(tmp_path: Path, style: str) -> None:
    """F2: what `options.setTtl` of Java sets is another thing than F1's. rocksdict reads it from a file of options only."""
    path = tmp_path / "db"
    made = options()
    made.set_compaction_style(getattr(DBCompactionStyle, style)())
    Rdict(str(path), options=made, column_families={"default": made}).close()
    for file in path.glob("OPTIONS-*"):
        text, changed = re.subn(r"^(\s*ttl)=\d+$", r"\1=1", file.read_text(), flags=re.MULTILINE)
        assert changed == 1
        file.write_text(text)
    loaded, families = Options.load_latest(str(path))
    db = Rdict(str(path), options=loaded, column_families=families)
    for n in range(1000):
        db[b"%04d" % n] = b"v"
    db.flush()
    expired = time.time() + 3.1
    while time.time() < expired:
        time.sleep(0.05)
    db[b"later"] = b"v"
    db.flush()
    db.compact_range(None, None)
    assert len(list(db.items())) == 1001
    db.close()
    assert any(re.search(r"^\s*ttl=1$", file.read_text(), re.MULTILINE) for file in path.glob("OPTIONS-*"))


class TestBounds:
    """F3: iterators are bounded by an upper bound forward, by comparison backward."""

    def test_upper_bound_is_exclusive(self, db: Any) -> None:
        read = ReadOptions()
        read.set_iterate_upper_bound(b"0004")
        assert [key for key, _ in db.items(from_key=b"0002", read_opt=read)] == [b"0002", b"0003"]

    def test_lower_bound_sets_the_upper_one(self, db: Any) -> None:
        read = ReadOptions()
        read.set_iterate_lower_bound(b"0004")
        assert [key for key, _ in db.items(read_opt=read)] == [b"%04d" % n for n in range(4)]

    def test_deletion_of_a_range_ignores_the_batchs_default_family(self, tmp_path: Path) -> None:
        db = opened(tmp_path / "db", "rows")
        rows = db.get_column_family("rows")
        db[b"a"] = rows[b"a"] = b"v"
        batch = WriteBatch(raw_mode=True)
        batch.set_default_column_family(db.get_column_family_handle("rows"))
        batch.delete_range(b"a", b"b")
        db.write(batch)
        assert (db.get(b"a"), rows.get(b"a")) == (None, b"v")
        del batch, rows
        db.close()


class TestIterators:
    """F4: what an iterator sees, and what it holds."""

    def test_sees_the_state_at_its_making(self, db: Any) -> None:
        rows = db.items()
        db[b"0000"] = b"new"
        del db[b"0001"]
        db[b"9999"] = b"new"
        assert list(rows) == numbered(10)

    def test_survives_the_database_and_keeps_its_lock(self, tmp_path: Path) -> None:
        first = opened(tmp_path / "db")
        first[b"a"] = b"v"
        rows = first.iter()
        rows.seek_to_first()
        first.close()
        assert rows.key() == b"a"
        with pytest.raises(Exception, match="lock hold by current process"):
            opened(tmp_path / "db")
        del rows
        opened(tmp_path / "db").close()

    def test_handle_of_a_family_keeps_the_lock(self, tmp_path: Path) -> None:
        first = opened(tmp_path / "db", "rows")
        handle = first.get_column_family_handle("rows")
        first.close()
        with pytest.raises(Exception, match="lock hold by current process"):
            opened(tmp_path / "db", "rows")
        del handle
        opened(tmp_path / "db", "rows").close()

    def test_outlives_a_family_that_is_dropped(self, tmp_path: Path) -> None:
        db = opened(tmp_path / "db", "rows")
        family = db.get_column_family("rows")
        for key, value in numbered(10):
            family[key] = value
        rows = family.iter()
        rows.seek_to_first()
        db.drop_column_family("rows")
        del family
        found = []
        while rows.valid():
            found.append((rows.key(), rows.value()))
            rows.next()
        assert found == numbered(10)
        del rows
        db.close()


class TestSecondary:
    """F5: a secondary opening beside the primary, for replicas."""

    def secondary(self, tmp_path: Path, *families: str) -> Rdict:
        return opened(tmp_path / "db", *families, access=AccessType.secondary(str(tmp_path / "second")))

    def test_reads_beside_the_primary_and_catches_up(self, tmp_path: Path) -> None:
        db = opened(tmp_path / "db")
        db[b"a"] = b"1"
        other = self.secondary(tmp_path)
        assert other.get(b"a") == b"1"
        db[b"a"] = b"2"
        assert other.get(b"a") == b"1"
        other.try_catch_up_with_primary()
        assert other.get(b"a") == b"2"
        other.close()
        db.close()

    def test_family_that_is_made_later_and_flushed_needs_another_opening(self, tmp_path: Path) -> None:
        db = opened(tmp_path / "db")
        db[b"a"] = b"1"
        other = self.secondary(tmp_path)
        rows = db.create_column_family("rows", options())
        rows[b"a"] = b"2"
        rows.flush()
        with pytest.raises(Exception, match="nknown column family"):
            other.try_catch_up_with_primary()
        other.close()
        other = self.secondary(tmp_path, "rows")
        assert other.get_column_family("rows").get(b"a") == b"2"
        other.close()
        rows.close()
        db.close()


def test_single_puts_reads_and_deletions_survive_without_a_flush(tmp_path: Path) -> None:
    """What `families.Families` rests on: a put is in the log of writes when it returns."""
    db = Rdict(str(tmp_path / "db"), options=store_options(), column_families={"default": store_options()})
    db[b"a"], db[b"b"] = b"1", b"2"
    del db[b"a"]
    db.close()
    db = Rdict(str(tmp_path / "db"), options=store_options(), column_families={"default": store_options()})
    assert list(db.items()) == [(b"b", b"2")]
    db.close()
