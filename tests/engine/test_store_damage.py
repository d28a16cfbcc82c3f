"""Whatever byte of a store is damaged, totals stay right; what is no damage costs no store. No Spark."""

import errno
import gc
import json
import os
import random
import resource
import shutil
import stat
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from sessionlake.config.store_engines import ENGINES
from sessionlake.engine import failpoints
from sessionlake.engine import shard as shard_task
from sessionlake.engine.pending import CORRUPT, FORGOTTEN, Pending, mark
from sessionlake.engine.shard import KEPT, NEW, RESTORED
from sessionlake.errors import CorruptionError, DiskFullError, StoreError, StoreHeldError
from sessionlake.store.directory import MARKER, is_damage
from sessionlake.store.engines import opened_by
from sessionlake.store.layout import FORMAT
from sessionlake.store.rocks import RocksSegments
from sessionlake.store.segmented import WRITE_SCHEMA
from tests.engine.shard_pipeline import Pipeline, Totals

KEYS = [f"key{number:05d}" for number in range(3000)]


on_files = pytest.mark.parametrize("ran", ["files"], indirect=True)


@pytest.fixture(scope="module", params=ENGINES)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Three batches: the store on disk `a` is at the first but one, the last is pending; disk `killed` has it in the log."""
    pipeline = Pipeline(tmp_path_factory.mktemp("damage"), engine=request.param)
    for _ in range(3):
        pipeline.batch("a", KEYS)
    with pytest.MonkeyPatch.context() as patch:
        apply = Totals.apply

        def copied(operator: Totals, *arguments: object) -> object:
            shutil.copytree(pipeline.root / "a", pipeline.root / "killed")
            return apply(operator, *arguments)  # type: ignore[arg-type]

        shutil.copytree(pipeline.root / "a", pipeline.root / "spare")
        patch.setattr(Totals, "apply", copied)
        pipeline.batch("spare", KEYS[:1], committed=False)
    return pipeline


@pytest.fixture
def pipeline(ran: Pipeline, tmp_path: Path) -> Pipeline:
    shutil.copytree(ran.root, tmp_path / "disks")
    copy = Pipeline(tmp_path / "disks", engine=ran.engine)
    copy.totals, copy.commit, copy.attempts = ran.totals.copy(), ran.commit, ran.attempts
    return copy


def next_batches(pipeline: Pipeline, disk: str = "a") -> str:
    """Run two batches, of one key and of all, and check their totals; return what became of the store in the first."""
    states = []
    for keys in (KEYS[:1], KEYS):
        expected = {key: pipeline.totals[key] + 1 for key in keys}
        state, totals = pipeline.batch(disk, keys)
        assert totals == expected
        states.append(state)
    return states[0]


def flip(file: Path, at: int) -> None:
    content = bytearray(file.read_bytes())
    content[at] ^= 0xFF
    file.write_bytes(content)


def newest_run(disk: Path) -> Path:
    """Return the file of the last write. What older ones have of its keys is not read until they are merged."""
    tables = [file for pattern in ("0/*.run", "0/*.sst") for file in disk.glob(pattern)]
    return max(tables, key=lambda file: file.stat().st_mtime_ns)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("disk", ["a", "killed"])
def test_any_byte_of_any_file(pipeline: Pipeline, disk: str, seed: int) -> None:
    chance = random.Random(seed)
    files = [file for file in sorted((pipeline.root / disk).rglob("*")) if file.is_file() and file.stat().st_size]
    for file in chance.sample(files, min(3, len(files))):
        flip(file, chance.randrange(file.stat().st_size))
    next_batches(pipeline, disk)


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3])
def test_a_table_cut_or_flipped_anywhere_is_restored(pipeline: Pipeline, part: float) -> None:
    table = newest_run(pipeline.root / "a")
    flip(table, int(part * table.stat().st_size))
    next_batches(pipeline)
    table = newest_run(pipeline.root / "a")
    os.truncate(table, int(part * table.stat().st_size))
    next_batches(pipeline)
    assert pipeline.causes == ["corrupt", "corrupt"]


@on_files
def test_damage_of_values_that_newer_ones_hide_is_found_by_the_merge(pipeline: Pipeline) -> None:
    run = newest_run(pipeline.root / "a")
    flip(run, int(0.6 * run.stat().st_size))
    assert next_batches(pipeline) == KEPT
    while not pipeline.causes:
        assert run.exists()
        next_batches(pipeline)
    assert pipeline.causes == ["corrupt"]
    next_batches(pipeline)
    assert pipeline.causes == ["corrupt"]


def break_current(store: Path) -> None:
    flip(store / "CURRENT", (store / "CURRENT").stat().st_size // 2)


def empty_current(store: Path) -> None:
    (store / "CURRENT").write_text("")


def other_format(store: Path) -> None:
    marker = json.loads((store / MARKER).read_text())
    (store / MARKER).write_text(json.dumps({**marker, "format": 0}))


def empty_marker(store: Path) -> None:
    (store / MARKER).write_text("")


@pytest.mark.parametrize(
    ("damage", "cause"),
    [(break_current, "corrupt"), (empty_current, "corrupt"), (other_format, "layout"), (empty_marker, "layout")],
)
def test_store_that_does_not_open_is_restored_and_other_files_stay(
    pipeline: Pipeline, damage: Callable[[Path], None], cause: str
) -> None:
    store = pipeline.root / "a" / "0"
    (store / "notes.txt").write_text("mine")
    damage(store)
    assert (next_batches(pipeline), pipeline.causes) == (RESTORED, [cause])
    assert (store / "notes.txt").read_text() == "mine"


@on_files
@pytest.mark.parametrize("marked", [True, False])
def test_store_of_rocksdb_as_earlier_releases_made_it_is_restored(pipeline: Pipeline, *, marked: bool) -> None:
    store = pipeline.root / "a" / "0"
    shutil.rmtree(store)
    old = RocksSegments(store)
    old.write({0: ([b"key"], [b"value"])}, {})
    old.close()
    if not marked:
        (store / MARKER).unlink()
    assert (next_batches(pipeline), pipeline.causes) == (RESTORED, ["layout"])
    assert json.loads((store / MARKER).read_text()) == {"pipeline": "a", "format": FORMAT}
    assert {file.suffix for file in store.iterdir()} == {"", ".run"}


def test_stores_are_restored_with_each_change_of_the_engine(pipeline: Pipeline) -> None:
    others = {"files": "rocksdb", "rocksdb": "files"}
    store = pipeline.root / "a" / "0"
    for turn in range(1, 4):
        pipeline.engine = others[pipeline.engine]
        assert (next_batches(pipeline), pipeline.causes) == (RESTORED, ["layout"] * turn)
        of_rocksdb = {bool(list(store.glob(pattern))) for pattern in ("OPTIONS-*", "*.sst")}
        assert of_rocksdb == {pipeline.engine == "rocksdb"} == {not list(store.glob("*.run"))}


def test_directory_that_is_no_store_is_refused_and_stays(pipeline: Pipeline) -> None:
    foreign = pipeline.root / "documents" / "0"
    foreign.mkdir(parents=True)
    (foreign / "thesis.doc").write_text("mine")
    for marks in ((), ("0.forget",)):
        for name in marks:
            (foreign.parent / name).touch()
        with pytest.raises(StoreError, match=r"holds 'thesis.doc' and is no store; move it, or choose another"):
            pipeline.batch("documents", KEYS[:1])
    assert [file.name for file in foreign.iterdir()] == ["thesis.doc"]


def test_too_many_open_files_cost_no_store(pipeline: Pipeline) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 9, hard))
        with ExitStack() as all_that_may_be_open:
            with suppress(OSError):
                while True:
                    all_that_may_be_open.enter_context(Path(os.devnull).open())
            with pytest.raises(StoreError, match="Too many open files") as raised:
                pipeline.batch("a", KEYS[:1])
        assert not isinstance(raised.value, CorruptionError)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (next_batches(pipeline), pipeline.causes) == (KEPT, [])


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        ("Corruption: block checksum mismatch: stored = 1, computed = 2 in /s/0/000015.sst", True),
        ("Corruption: IO error: No such file or directory: While open a file: /s/0/000015.sst", True),
        ("IO error: No such file or directory: While opening a file: /s/0/MANIFEST-000005", True),
        ("IO error: While mmap read offset 9 larger than file length 8: /s/0/000015.sst: Invalid argument", True),
        ("IO error: while mmap file for read: /s/0/000015.sst: Invalid argument", True),
        ("IO error: No such file or directory: /proc/meminfo", False),
        ("IO error: No space left on device: While appending to file: /s/0/000015.sst", False),
        ("IO error: While mmap file: /s/0/000015.sst: Cannot allocate memory", False),
        ("IO error: While opening a file: /s/0/CURRENT: Permission denied", False),
        ("IO error: While pread offset 0: /s/0/000015.sst: Input/output error", False),
        ("Corruption: IO error: While open a file: /s/0/000015.sst: Too many open files", False),
        ("Invalid argument: Found options incompatible with filesystem", False),
    ],
)
def test_only_damage_is_damage(text: str, *, damage: bool) -> None:
    assert is_damage(text, Path("/s/0")) is damage


def test_pending_file_with_any_byte_flipped_is_never_read(tmp_path: Path) -> None:
    pending, writes = Pending(tmp_path), pa.table({"key": [b"a", b"bc", None], "number": [1, None, 3]})
    pending.write("c", "base", writes.slice(1))
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for at in range(len(whole)):
        flip(file, at)
        with pytest.raises(CorruptionError):
            pending.read("c", "base")
        file.write_bytes(whole[:at])
        with pytest.raises(CorruptionError):
            pending.read("c", "base")
        file.write_bytes(whole)
    found = pending.read("c", "base")
    assert found is not None
    assert found.equals(writes.slice(1))


def test_pending_writes_under_the_name_of_another_commit_are_not_its_writes(tmp_path: Path) -> None:
    """Two attempts of a batch build on one commit of the store."""
    pending = Pending(tmp_path / "0.pending")
    pending.write("given up", "base", pa.table({"key": [b"a"]}))
    (file,) = (tmp_path / "0.pending").iterdir()
    shutil.copy(file, file.with_stem("committed"))
    assert pending.read("committed", "base") is None
    assert pending.read("given up", "base") is not None


def test_a_restore_that_was_killed_leaves_nothing_to_another_warehouse(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows have no commit id, as if no batch had touched the shard, which is what the other warehouse expects."""

    def killed(point: str) -> None:
        if point == "worker_restoring":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", killed)
        with pytest.raises(KeyboardInterrupt):
            pipeline.batch("new", KEYS)
    gc.collect()
    other = Pipeline(pipeline.root, engine=pipeline.engine)
    assert other.batch("new", KEYS[:2]) == (NEW, dict.fromkeys(KEYS[:2], 1))
    assert (other.batch("new", KEYS[:3])[1], other.causes) == ({KEYS[0]: 2, KEYS[1]: 2, KEYS[2]: 1}, [])


@pytest.mark.parametrize("names", [["", ".pending"], [""], [".pending"]])
def test_a_shard_never_uses_what_is_another_shards(tmp_path: Path, names: list[str]) -> None:
    """All shards' stores are at the same commit id."""
    pipelines = [Pipeline(tmp_path / str(shard), shard) for shard in (0, 1)]
    for _ in range(2):
        for pipeline in pipelines:
            pipeline.batch("a", KEYS[: 3 + pipeline.shard])
    for name in names:
        shutil.rmtree(tmp_path / "0" / "a" / f"0{name}")
        shutil.copytree(tmp_path / "1" / "a" / f"1{name}", tmp_path / "0" / "a" / f"0{name}")
    next_batches(pipelines[0])
    assert pipelines[0].causes == ["stale"]


@pytest.mark.parametrize(
    ("number", "error", "told"),
    [
        (errno.ENOSPC, DiskFullError, r"disks/a' has [\d,]+ MB free, and a batch needs more; make room"),
        (errno.EIO, StoreError, r"0.pending' can't be written \(.*Input/output error"),
        (errno.EACCES, StoreError, r"0.pending' can't be written \(.*Permission denied"),
    ],
)
def test_writes_that_can_not_be_kept_name_the_directory(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StoreError], told: str
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr("sessionlake.engine.pending.os.fsync", refused)
        with pytest.raises(error, match=told):
            pipeline.batch("a", KEYS)
    assert (next_batches(pipeline), pipeline.causes) == (KEPT, [])


@pytest.mark.parametrize("cause", [FORGOTTEN, CORRUPT])
def test_a_marked_store_is_restored_with_the_cause(pipeline: Pipeline, cause: str) -> None:
    mark(pipeline.root / "a", 0, cause)
    assert (next_batches(pipeline), pipeline.causes) == (RESTORED, [cause])


def test_a_value_that_is_too_large_is_refused_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_task, "_MOST_VALUE_BYTES", 1000)
    values = [b"v" * 1000, b"v" * 1001, None]
    rows = {"segment": [1, 1, 1], "key": [b"ann", b"bob", b"eve"], "value": values}
    writes = pa.table(rows, schema=WRITE_SCHEMA)
    shard_task._require_storable(3, writes.slice(0, 1))
    with pytest.raises(
        StoreError, match=r"one key of shard 3 \(xxh64 of its stored key: [0-9a-f]{16}\) needs 0 MB"
    ) as raised:
        shard_task._require_storable(3, writes)
    assert "bob" not in str(raised.value)


def test_directories_are_the_users_alone(pipeline: Pipeline) -> None:
    pipeline.batch("new/disk", KEYS[:1])
    made = ["new", "new/disk", "new/disk/0", "new/disk/0.pending"]
    assert {stat.S_IMODE((pipeline.root / name).stat().st_mode) for name in made} == {0o700}


def test_a_store_of_the_other_engine_is_removed_once_its_task_has_let_it_go(pipeline: Pipeline) -> None:
    """An executor that Spark has given up may hold it for a short time."""
    held = opened_by(pipeline.engine)(pipeline.root / "a" / "0")
    release = threading.Timer(1, held.close)
    pipeline.engine = "files" if pipeline.engine == "rocksdb" else "rocksdb"
    release.start()
    assert (next_batches(pipeline), pipeline.causes) == (RESTORED, ["layout"])
    release.join()


def test_a_store_of_the_other_engine_that_stays_held_is_the_error(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_task, "_LOCK_SECONDS", 0.2)
    held = opened_by(pipeline.engine)(pipeline.root / "a" / "0")
    pipeline.engine = "files" if pipeline.engine == "rocksdb" else "rocksdb"
    with pytest.raises(StoreHeldError) as raised:
        pipeline.batch("a", KEYS[:1])
    assert raised.value.__suppress_context__
    held.close()
