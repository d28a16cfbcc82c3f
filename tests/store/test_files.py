"""The database of files beside a plain dictionary: reads, ranges, merges, damage, crashes and locks."""

import errno
import fcntl
import gc
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sessionlake.engine.pending import Pending
from sessionlake.errors import CorruptionError, DiskFullError, StoreError, StoreHeldError
from sessionlake.store import directory, files, levels, runs
from sessionlake.store.directory import remove_store
from sessionlake.store.files import FileSegments
from sessionlake.store.layout import FORMAT
from sessionlake.store.secondary import SecondarySegments
from tests.support import examples

FIXTURES = Path(__file__).parents[1] / "fixtures"
_MOST = (1 << 64) - 1
KEYS = st.binary(max_size=3) | st.sampled_from([b"user-%d" % number for number in range(30)])
WRITES = st.dictionaries(KEYS, st.none() | st.binary(max_size=5), max_size=12)
BOUND = st.none() | KEYS


def arrays(values: dict[bytes, bytes | None]) -> tuple[pa.Array, pa.Array]:
    return pa.array(values.keys(), pa.binary()), pa.array(values.values(), pa.binary())


def _lengths(keys: pa.Array, seed: int) -> Any:
    del seed
    return np.array([len(key) << 62 & _MOST for key in keys.to_pylist()], np.uint64)


class Machine(RuleBasedStateMachine):
    """Small steps, so that merges are at work nearly always."""

    @initialize(
        fan=st.integers(2, 4), step=st.integers(1, 5), run_bytes=st.sampled_from([1, 20, 1 << 20]), weak=st.booleans()
    )
    def begin(self, fan: int, step: int, run_bytes: int, *, weak: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        if weak:  # many keys have one hash
            of_length = {"hash_bytes": _lengths, "xxh64_intdigest": lambda key, _: len(key) << 62 & _MOST}
            for name, function in of_length.items():
                self.patch.setattr(runs, name, function)
            self.patch.setattr(levels, "hash_bytes", _lengths)
            # Only look-ups of many keys compare hashes side by side.
            self.patch.setattr(levels, "_FEW", 0)
        self.patch.setattr(levels, "FAN", fan)
        self.patch.setattr(levels, "_LEAST_STEP", step)
        self.patch.setattr(levels, "_FIRST_PIECE", step)
        self.patch.setattr(levels, "_PIECE", 2 * step)
        self.patch.setattr(files, "_RUN_BYTES", run_bytes)
        self.root = Path(tempfile.mkdtemp())
        self.path = self.root / "shard"
        self.db = FileSegments(self.path)
        self.model: dict[int, dict[bytes, bytes]] = {}
        self.told: dict[str, bytes] = {}

    @rule(writes=st.dictionaries(st.integers(-1, 2), WRITES, max_size=2), meta=st.binary(max_size=3))
    def write(self, writes: dict[int, dict[bytes, bytes | None]], meta: bytes) -> None:
        self.db.write({number: arrays(values) for number, values in writes.items()}, {"batch": meta})
        self.told["batch"] = meta
        for number, values in writes.items():
            segment = self.model.setdefault(number, {})
            for key, value in values.items():
                if value is None:
                    segment.pop(key, None)
                else:
                    segment[key] = value

    @rule(number=st.integers(-1, 3))
    def drop_before(self, number: int) -> None:
        self.db.drop_before(number)
        self.model = {n: values for n, values in self.model.items() if n >= number}

    @rule(asked=st.sets(KEYS, max_size=20))
    def look_up(self, asked: set[bytes]) -> None:
        for number, values in self.model.items():
            wanted = [values.get(key) for key in asked]
            assert self.db.get(number, list(asked)) == wanted
            assert self.db.find(number, pa.array(asked, pa.binary())).to_pylist() == wanted

    @rule(low=BOUND, high=BOUND, limit=st.none() | st.integers(1, 5))
    def look_through(self, low: bytes | None, high: bytes | None, limit: int | None) -> None:
        for number, values in self.model.items():
            wanted = [
                item
                for item in sorted(values.items())
                if (low is None or item[0] >= low) and (high is None or item[0] <= high)
            ]
            assert self.db.items(number, low, high, limit) == wanted[:limit]
            back = [
                item
                for rows in self.db._state.segments[number].items(low, high, limit, backward=True)
                for item in list(zip(rows.keys.to_pylist(), rows.values.to_pylist(), strict=True))[::-1]
            ]
            assert back == wanted[::-1][:limit]

    @rule()
    def open_again(self) -> None:
        self.db.close()
        (self.path / "999.run").write_bytes(b"of a process that was killed")
        self.db = FileSegments(self.path)
        assert not (self.path / "999.run").exists()

    @rule()
    def clear(self) -> None:
        self.db.clear()
        self.model, self.told = {}, {}

    @invariant()
    def nothing_else_is_there(self) -> None:
        if hasattr(self, "db"):
            assert self.db.segments == sorted(self.model)
            assert self.db.meta("batch") == self.told.get("batch")
            there = {file.name for file in self.path.glob("*.run")}
            assert there == self.db._state.files
            # Levels stay few, whatever is written.
            for of in self.db._state.segments.values():
                for tier in {level.tier for level in of.levels}:
                    assert sum(level.tier == tier for level in of.levels) <= 3 * levels.FAN

    def teardown(self) -> None:
        self.db.close()
        self.patch.undo()
        shutil.rmtree(self.root)


TestMachine = Machine.TestCase
TestMachine.settings = settings(examples(400), stateful_step_count=40)


@pytest.mark.slow
class TestSlowMachine(Machine.TestCase):  # type: ignore[name-defined,misc]
    """The same with more and longer histories."""

    settings = settings(examples(300), stateful_step_count=50)


def test_a_value_is_kept_a_few_times_however_often_it_is_written(tmp_path: Path) -> None:
    db = FileSegments(tmp_path / "p" / "0")
    for number in range(700):
        keys = [b"%04d" % (key % 400) for key in range(20 * number, 20 * number + 20)]
        db.write({1: (keys, [b"%d" % number] * len(keys))}, {})
        assert sum(level.rows for level in db._state.segments[1].levels) <= 4 * 400 + 20 * 2 * levels.FAN
    db.close()


def test_levels_are_few_also_if_batches_get_much_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "_LEAST_STEP", 1)
    db = FileSegments(tmp_path / "p" / "0")
    for number in range(100):
        keys = [b"%06d" % (2000 * number + key) for key in range(2000 if number < levels.FAN else 1)]
        db.write({1: (keys, [b"%d" % number] * len(keys))}, {})
        assert len(db._state.segments[1].levels) <= 4 * levels.FAN
    db.close()


def test_keys_whose_hashes_are_equal_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "hash_bytes", _lengths)
    monkeypatch.setattr(levels, "hash_bytes", _lengths)
    monkeypatch.setattr(runs, "xxh64_intdigest", lambda key, _: len(key) << 62 & _MOST)
    db = FileSegments(tmp_path / "p" / "0")
    values = {b"%03d" % key: b"%d" % key for key in range(300)}
    db.write({1: arrays({**values, b"12": None, b"1234567": b"x"})}, {})
    asked = [*values, b"300", b"123", b"12", b"4", b"1234567"]
    wanted = [*values.values(), None, b"123", None, None, b"x"]
    del asked[301], wanted[301]  # keys are asked for once
    assert db.get(1, asked) == wanted
    assert [db.get(1, [key])[0] for key in asked] == wanted
    db.close()


def test_runs_stay_open_for_whoever_opens_the_store_again_unless_their_files_are_others(tmp_path: Path) -> None:
    path = tmp_path / "p" / "0"

    db = FileSegments(path)
    db.write({1: ([b"a"], [b"1"]), 2: ([b"a"], [b"2"])}, {})
    runs_ = [next(db._state.segments[number].parts).run for number in (1, 2)]
    db.close()
    assert len({run.seed for run in runs_}) == 2
    db = FileSegments(path)
    assert [next(db._state.segments[number].parts).run for number in (1, 2)] == runs_
    db.close()
    first = min(path.glob("*.run"))
    first.write_bytes(first.read_bytes()[:-20] + bytes(20))
    with pytest.raises(CorruptionError, match="page 0 is not as it was written"):
        FileSegments(path)
    for number in range(2 * files._MOST_WARM):
        FileSegments(tmp_path / "p" / f"{number + 1}").close()
    assert len(files._warm) <= files._MOST_WARM


@pytest.mark.parametrize("seed", range(4))
def test_few_keys_are_written_and_deleted_while_merges_are_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Deletions hide values of older levels, merges drop them in the oldest one, and rows that are merged already are hidden."""
    for name, value in {"FAN": 2 + seed % 2, "_LEAST_STEP": 1, "_FEW": 0}.items():
        monkeypatch.setattr(levels, name, value)
    chance, keys, model = random.Random(seed), [b"%02d" % key for key in range(40)], dict[bytes, bytes]()
    db = FileSegments(tmp_path / "p" / "0")
    for number in range(150):
        some = sorted(chance.sample(keys, chance.choice((1, 2, 30))))
        values = [None if chance.random() < 0.5 else b"%d" % number for _ in some]
        db.write({1: (some, values)}, {})
        model |= {key: value for key, value in zip(some, values, strict=True) if value is not None}
        for key, value in zip(some, values, strict=True):
            if value is None:
                model.pop(key, None)
        wanted = [model.get(key) for key in keys]
        assert db.get(1, keys) == wanted
        assert [db._state.segments[1].get(key) for key in keys] == wanted
        assert db.items(1) == sorted(model.items())
    db.close()


def refused(*_: object) -> None:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_files_of_before_stay_until_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "FAN", 2)
    path = tmp_path / "p" / "0"
    db = FileSegments(path)
    db.write({1: ([b"a"], [b"1"])}, {})
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refused)
        with pytest.raises(StoreError, match="can't be used"):
            db.write({1: ([b"a"], [b"2"])}, {})
    db.close()
    db = FileSegments(path)
    assert db.get(1, [b"a"]) == [b"1"]
    db.close()


def test_one_at_a_time(tmp_path: Path) -> None:
    first = FileSegments(tmp_path / "p" / "0")
    with pytest.raises(StoreHeldError, match="is open in another process"):
        FileSegments(tmp_path / "p" / "0")
    first.close()
    FileSegments(tmp_path / "p" / "0").close()


@pytest.mark.parametrize("removal", ["cleared", "removed and made again", "removed"])
def test_a_lock_on_a_file_that_was_removed_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    """Between the moments at which a process opens the lock's file and locks it another one removes the store."""
    path, flock = tmp_path / "p" / "0", fcntl.flock
    others = [FileSegments(path)]
    if removal != "cleared":
        others.pop().close()

    def after_the_removal(file: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        if removal == "cleared":
            others[0].clear()
        else:
            remove_store(path)
        if removal == "removed and made again":
            others.append(FileSegments(path))
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", after_the_removal)
    with pytest.raises(StoreHeldError) if others or "again" in removal else nullcontext():
        FileSegments(path).close()
    for other in others:
        other.write({1: ([b"a"], [b"1"])}, {})
        other.close()
    with closing(FileSegments(path)) as db:
        assert db.segments == ([1] if others else [])


def test_two_processes_may_make_one_store_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the moments at which one finds no marker and looks for other files the other one is ready."""
    path, names, others = tmp_path / "p" / "0", directory._names, []

    def after_the_other(at: Path) -> set[str]:
        monkeypatch.setattr(directory, "_names", names)
        others.append(FileSegments(path))
        return names(at)

    monkeypatch.setattr(directory, "_names", after_the_other)
    with pytest.raises(StoreHeldError):
        FileSegments(path)
    others[0].close()
    FileSegments(path).close()


def test_two_processes_may_remove_one_store_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, names = tmp_path / "p" / "0", directory._names
    FileSegments(path).close()

    def before_the_other(at: Path) -> set[str]:
        monkeypatch.setattr(directory, "_names", names)
        found = names(at)
        remove_store(path)
        return found

    monkeypatch.setattr(directory, "_names", before_the_other)
    remove_store(path)
    assert not path.exists()


def test_a_removal_waits_for_nobody_and_takes_no_store_that_was_begun_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rmdir = tmp_path / "p" / "0", Path.rmdir
    FileSegments(path).close()
    others = []

    def after_another_opening(self: Path) -> None:
        others.append(FileSegments(path))
        rmdir(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", after_another_opening)
        remove_store(path)
    others[0].write({1: ([b"a"], [b"1"])}, {})
    others[0].close()
    with closing(FileSegments(path)) as db:
        assert db.items(1) == [(b"a", b"1")]


@pytest.mark.parametrize("clearing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_store_is_whole_or_empty_wherever_its_making_or_clearing_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, clearing: bool
) -> None:
    interrupted = 0
    for left in range(30):
        path, steps = tmp_path / str(left) / "0", [left]
        if clearing:
            with closing(FileSegments(path)) as db:
                db.write({1: ([b"a"], [b"1"])}, {"commit": b"c"})
        db = None
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for name in ("write_text", "write_bytes", "replace", "unlink"):
                patch.setattr(Path, name, _counted(getattr(Path, name), steps))
            db = FileSegments(path)
            if clearing:
                db.clear()
        interrupted += steps[0] < 0
        del db
        gc.collect()
        with closing(FileSegments(path)) as db:
            found = db.segments, db.meta("commit")
            assert found in ([([], None), ([1], b"c")] if clearing else [([], None)])
    assert 3 < interrupted < 30


def _counted(function: Any, left: list[int]) -> Any:
    def counted(*args: Any, **named: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise KeyboardInterrupt
        return function(*args, **named)

    return counted


def test_a_whole_file_in_the_place_of_another_one_is_damage(tmp_path: Path) -> None:
    """A page's checksum says that the page is whole, not of which file it is."""
    stores = [tmp_path / "p" / name for name in ("0", "1")]
    for path in stores:
        with closing(FileSegments(path)) as db:
            for number in (1, 2):
                db.write({1: ([b"a"], [b"%d" % number])}, {})
    kept = {file: file.read_bytes() for path in stores for file in path.glob("*.run")}
    for file, own in kept.items():
        for other in set(kept.values()) - {own}:
            file.write_bytes(other)
            with pytest.raises(CorruptionError, match="is another file than the one that CURRENT names"):
                FileSegments(file.parent)
            with pytest.raises(StoreError, match="is another file"):
                SecondarySegments(file.parent)
        file.write_bytes(own)
    for path in stores:
        with closing(FileSegments(path)) as db:
            assert db.items(1) == [(b"a", b"2")]


def test_no_name_of_a_file_is_used_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "p" / "0", list[str]()
    write = files.write_run

    def noted(file: Path, *args: Any) -> None:
        seen.append(file.name)
        write(file, *args)

    monkeypatch.setattr(files, "write_run", noted)
    for _ in range(2):
        db = FileSegments(path)
        db.write({1: ([b"a"], [b"1"])}, {})
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_bytes", refused)
            with pytest.raises(StoreError):
                db.write({1: ([b"a"], [b"1"])}, {})
        db.write({1: ([b"a"], [b"1"])}, {})
        db.clear()
        db.write({1: ([b"a"], [b"1"])}, {})
        db.close()
    assert len(seen) == len(set(seen)) >= 8


@pytest.mark.parametrize(("fails", "left"), [("write_bytes", 1), ("replace", 2)])
def test_a_full_disk_at_the_commit_leaves_no_file_of_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, left: int
) -> None:
    """But for one at the rename itself, which may have happened all the same. The open store takes the write later."""
    path = tmp_path / "p" / "0"
    db = FileSegments(path)
    db.write({1: ([b"a"], [b"1"])}, {"commit": b"1"})

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, fails, full)
        with pytest.raises(DiskFullError):
            db.write({1: ([b"a"], [b"2"])}, {"commit": b"2"})
    assert len([*path.glob("*.run")]) == left
    assert (db.get(1, [b"a"]), db.meta("commit")) == ([b"1"], b"1")
    db.write({1: ([b"a"], [b"2"])}, {"commit": b"2"})
    assert (db.get(1, [b"a"]), db.meta("commit")) == ([b"2"], b"2")
    db.close()
    with closing(FileSegments(path)) as db:
        assert (db.get(1, [b"a"]), db.meta("commit")) == ([b"2"], b"2")
        assert {file.name for file in path.iterdir()} - db._state.files == {
            "CURRENT",
            "IDENTITY",
            "LOCK",
            "SESSIONLAKE",
        }


def test_a_store_of_format_3_is_opened_and_goes_on(tmp_path: Path) -> None:
    """As release 9fd1ec33 wrote it, with merges at work, and the writes of a batch that waited."""
    with tarfile.open(FIXTURES / "store-3.tar.gz") as saved:
        saved.extractall(tmp_path, filter="data")
    folder = tmp_path / "pipeline"
    rows = json.loads((folder / "rows.json").read_text())
    told = {int(n): {key.encode(): value.encode() for key, value in of.items()} for n, of in rows.items()}
    assert [*SecondarySegments(folder / "0").items(1)] == sorted(told[1].items())
    for number in range(20):
        with closing(FileSegments(folder / "0")) as db:
            assert {n: dict(db.items(n)) for n in db.segments} == told
            assert db.meta("commit_id") == b"c%d" % (13 + number)
            assert json.loads((folder / "0" / "SESSIONLAKE").read_text())["format"] == FORMAT
            db.write({1: ([b"new"], [b"%d" % number])}, {"commit_id": b"c%d" % (14 + number)})
            told[1][b"new"] = b"%d" % number
    waits = Pending(folder / "0.pending").read("c14", "c13")
    assert waits is not None
    assert waits["value"].to_pylist() == [b"pending", None]


READER = """
import os, shutil, sys
from pathlib import Path
from sessionlake.store.files import FileSegments

db = FileSegments(Path(sys.argv[1]))
(run,) = Path(sys.argv[1]).glob("*.run")
if sys.argv[2] == "another":  # the file that is mapped is then not the one that has its name
    shutil.copyfile(run, "copy")
    run.rename("mapped")
    os.rename("copy", run)
    run = Path("mapped")
os.truncate(run, 4096)
try:
    db.get(1, [b"%07d" % key for key in range(0, 40_000, 2)])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("named", "told"), [("same", "CorruptionError .* it got shorter"), ("another", "StoreError .*: '.*run'")]
)
def test_mapped_bytes_that_the_disk_can_not_give_are_an_error(
    written: tuple[Path, dict[bytes, bytes | None]], named: str, told: str
) -> None:
    """They ended the process by SIGBUS, and nothing said that a store was the cause. A bad sector is as the second file."""
    command = [sys.executable, "-c", READER, str(written[0]), named]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=written[0].parent)
    assert re.match(told, done.stdout)


WRITER = """
import sys
import pyarrow as pa
from pathlib import Path
from sessionlake.store import levels
from sessionlake.store.files import FileSegments

levels.FAN, levels._LEAST_STEP = 3, 20
db = FileSegments(Path(sys.argv[1]))
names = [b"key-%d" % number for number in range(300)]
for batch in range(int(db.meta("batch") or b"0") + 1, 1 << 30):
    values = pa.array([b"%d" % batch] * len(names), pa.binary())
    db.write({1: (pa.array(names, pa.binary()), values), 2: ([b"batch"], [b"%d" % batch])}, {"batch": b"%d" % batch})
    print(batch, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_leaves_a_batch_whole_or_not_at_all(tmp_path: Path, seed: int) -> None:
    """And whoever reads beside it sees one batch at a time."""
    path, chance, seen = tmp_path / "p" / "0", random.Random(seed), 0
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            until = time.monotonic() + chance.random()
            while time.monotonic() < until:
                seen = max(seen, whole(SecondarySegments(path)))
            writer.kill()
        db = FileSegments(path)
        assert whole(db) >= seen
        assert {file.name for file in path.glob("*.run")} == db._state.files
        db.close()
    assert seen > 0


def whole(db: FileSegments | SecondarySegments) -> int:
    """Return the batch that all of a store is of."""
    batch = db.meta("batch")
    values = {value for number in (1, 2) for _, value in db.items(number)}
    assert batch is not None
    assert values == {batch}
    return int(batch)


def test_a_file_that_is_gone_or_that_says_less_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "p" / "0"
    db = FileSegments(path)
    db.write({1: ([b"a", b"b"], [b"1", b"2"])}, {})
    db.close()
    (run,) = (file.name for file in path.glob("*.run"))
    whole_file, current = (path / run).read_bytes(), (path / "CURRENT").read_bytes()
    for name, content in {run: whole_file[:-1], "CURRENT": current.replace(b'.run", 0', b'.run", 2')}.items():
        kept = (path / name).read_bytes()
        (path / name).write_bytes(content)
        with pytest.raises(CorruptionError, match=name):
            FileSegments(path)
        (path / name).write_bytes(kept)
    for name in (run, "CURRENT"):
        kept = (path / name).read_bytes()
        (path / name).unlink()
        with pytest.raises(CorruptionError, match=name):
            FileSegments(path)
        (path / name).write_bytes(kept)
    FileSegments(path).close()


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, dict[bytes, bytes | None]]:
    """Return a store of one file of 80 pages, and its content: every second number is a key."""
    path = tmp_path / "p" / "0"
    values: dict[bytes, bytes | None] = {b"%07d" % key: b"%d" % key * 20 for key in range(0, 40_000, 2)}
    with closing(FileSegments(path)) as db:
        db.write({1: arrays(values)}, {})
    return path, values


@pytest.mark.parametrize("many", [1, 50, 100, 40_000])
def test_keys_are_found_and_others_are_not(written: tuple[Path, dict[bytes, bytes | None]], many: int) -> None:
    path, values = written
    rng = np.random.default_rng(0)
    with closing(FileSegments(path)) as db:
        for _ in range(20):
            asked = [b"%07d" % key for key in rng.choice(40_000, many, replace=False)]
            assert db.get(1, asked) == [values.get(key) for key in asked]


@pytest.mark.parametrize("many", [1, 50, 100])
def test_a_damaged_byte_is_no_other_answer(written: tuple[Path, dict[bytes, bytes | None]], many: int) -> None:
    """It is seen by the look-ups that need its page."""
    path, values = written
    (run,) = path.glob("*.run")
    whole, rng = run.read_bytes(), np.random.default_rng(0)
    found = []
    for at in rng.integers(0, len(whole), 60).tolist():
        run.write_bytes(whole[:at] + bytes([whole[at] ^ 64]) + whole[at + 1 :])
        asked = [b"%07d" % key for key in rng.choice(40_000, many, replace=False)]
        try:
            with closing(FileSegments(path)) as db:
                assert db.get(1, asked) == [values.get(key) for key in asked]
            found.append(False)
        except CorruptionError:
            found.append(True)
    assert 0 < sum(found) < 60


@pytest.mark.parametrize(("many", "sees"), [(100, False), (1000, True)])
def test_many_keys_see_all_damage(
    written: tuple[Path, dict[bytes, bytes | None]],
    many: int,
    sees: bool,  # noqa: FBT001
) -> None:
    """Of so many keys that most pages are needed soon, all pages are verified."""
    path, values = written
    (run,) = path.glob("*.run")
    whole = run.read_bytes()
    last = whole.rindex(b"39998" * 20)
    run.write_bytes(whole[:last] + b"4" + whole[last + 1 :])
    with (
        closing(FileSegments(path)) as db,
        pytest.raises(CorruptionError, match="page") if sees else nullcontext(),
    ):
        asked = [*values][:many]
        assert db.get(1, asked) == [values[key] for key in asked]
