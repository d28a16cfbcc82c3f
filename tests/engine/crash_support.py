"""Pipelines to be crashed: their input, runs with an end of our choosing, and their tables read without Spark."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.engine import failpoints, shard
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.support import correction_of

Row = dict[str, Any]
DRIVER_POINTS = (
    "term_begun",
    "computed",
    "before_late",
    "after_late",
    "before_dead",
    "after_dead",
    "before_outcomes",
    "after_outcomes",
    "before_changelog",
    "after_changelog",
)
TABLES = (schemas.CHANGELOG, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES)
MINUTE = 60
T0 = 1_700_000_000
KEYS = [f"key{i}" for i in range(16)]
FIRST, SECOND = range(2), range(2, 4)
"""Files, one a batch; corrections arrive with the second half."""

CONFIG = """\
[pipeline]
name = "crash"
warehouse = "warehouse"
shards = {shards}
store = "{store}"

[source]
kind = "files"
path = "{events}"
format = "json"
max_files_per_batch = 1

[event]
key = "key"
time = "time"
time_unit = "s"

[session]
gap = "10 minutes"
grace = "{grace}"
retention = "{retention}"

[aggregates]
total = "sum(v)"
last = "last(tag)"
"""


def config_of(section: str) -> str:
    """Return the config with another operator's sections in the place of [session]."""
    before, after = (CONFIG.index(name) for name in ("[session]", "[aggregates]"))
    return CONFIG[:before] + section + CONFIG[after:]


class CrashError(Exception):
    """The stand-in for SIGKILL where the test's own process must live on."""


@dataclass
class Lake:
    """A pipeline in a directory of its own."""

    root: Path
    events: Path
    settings: dict[str, Any] = field(default_factory=dict)
    template: ClassVar[str] = CONFIG
    changelog: ClassVar[str] = schemas.CHANGELOG
    tables: ClassVar[tuple[str, ...]] = TABLES

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.events.mkdir(parents=True, exist_ok=True)
        self.configure()

    def copy(self, root: Path) -> Self:
        """Return a copy that goes on from here by itself, reading the same files."""
        shutil.copytree(self.root, root)
        return type(self)(root, self.events, self.settings)

    def configure(self, **settings: Any) -> Config:
        defaults = {
            "events": self.events,
            "shards": 3,
            "store": "store",
            "grace": "15 minutes",
            "retention": "40 minutes",
            "added": "",
        }
        self.settings = {**defaults, **self.settings, **settings}
        self.path.write_text(self.template.format(**self.settings))
        return self.config

    @property
    def path(self) -> Path:
        return self.root / "crash.toml"

    @property
    def config(self) -> Config:
        return load_config(self.path)

    @property
    def stores(self) -> Path:
        return Path(self.config.store_dir)

    @property
    def warehouse(self) -> Path:
        return self.root / "warehouse"

    def write_files(self, files: range) -> None:
        for number in files:
            write_events(self.events / f"{number}.json", number, events(number))

    def correct(self, spark: SparkSession) -> None:
        Tables(spark, str(self.warehouse), CHANGELOG)[schemas.CORRECTIONS].append_rows(
            corrections(self.rows(schemas.CHANGELOG))
        )

    def log(self, table: str) -> list[list[Row]]:
        """Return the actions of each commit of a table."""
        files = sorted((self.warehouse / table / "_delta_log").glob("*.json"))
        return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]

    def commits(self) -> list[Row]:
        """Return the metadata of the changelog's commits of batches."""
        infos = [
            action["commitInfo"] for commit in self.log(self.changelog) for action in commit if "commitInfo" in action
        ]
        found = [json.loads(info["userMetadata"])["sessionlake"] for info in infos if "userMetadata" in info]
        return [metadata for metadata in found if not metadata.get("copied")]

    def rows(self, table: str) -> list[Row]:
        """Return a table's rows, in an order of their own, without what differs from run to run and from place to place."""
        live: dict[str, None] = {}
        for commit in self.log(table):
            live.update(dict.fromkeys(action["add"]["path"] for action in commit if "add" in action))
            for action in commit:
                if "remove" in action:
                    live.pop(action["remove"]["path"], None)
        files = [pq.ParquetFile(self.warehouse / table / path) for path in live]
        assert not any(
            column.physical_type == "INT96"
            for file in files
            for column in map(file.schema.column, range(len(file.schema)))
        )
        parts = [file.read() for file in files]
        found = pa.concat_tables(parts, promote_options="permissive").to_pylist() if parts else []
        for row in found:
            for name in ("commit_id", "at", "emitted_at", "written_at", "inserted_at", "changed_at"):
                row.pop(name, None)
            if row.get("source"):
                row["source"] = row["source"].replace(str(self.events), "")
        return sorted(found, key=repr)

    def content(self) -> dict[str, Any]:
        """Return all that must be the same however often the pipeline died."""
        for commit in (commits := self.commits()):
            commit["state"].pop("clock_us", None)
            commit["counts"].pop("cleanup_us", None)  # measured
        counts = [(c["batch_id"], c["counts"], c["state"]) for c in commits]
        return {"counts": counts, **{name: self.rows(name) for name in self.tables}}


AnyLake = TypeVar("AnyLake", bound=Lake)
Undisturbed = tuple[AnyLake, list[str]]
"""A pipeline that ran to its end, and the failpoints that its first batch came to."""


def events(number: int) -> list[str]:
    """Return a file's lines: half an hour of events, some late, some dead, some malformed; the last one has all keys."""
    rng = random.Random(number)
    base = T0 + number * 30 * MINUTE

    def at(low: int, high: int) -> Row:
        time = base + rng.randrange(low * MINUTE, high * MINUTE)
        return {"key": rng.choice(KEYS), "time": time, "v": rng.randrange(100), "tag": rng.choice("abcde")}

    rows: list[Row | str] = [at(0, 30) for _ in range(30)]
    if number == SECOND[-1]:
        rows += [{**at(-5, 25), "key": key} for key in KEYS]
    if number:
        rows += [at(-45, -20) for _ in range(8)] + [at(-300, -200) for _ in range(2)]
    rows += ["{broken", {"key": None, "time": base, "v": 1, "tag": "a"}, {**at(0, 1), "time": 4_000_000_000}]
    rng.shuffle(rows)
    return [row if isinstance(row, str) else json.dumps(row) for row in rows]


def files_of(events: Path) -> list[Path]:
    """Return the files of a pipeline's input in the order in which they are read."""
    return sorted(events.glob("[0-9]*.json"), key=lambda file: file.stat().st_mtime)


def write_events(path: Path, number: int, lines: list[str]) -> None:
    hidden = path.with_name(f".{path.name}")
    hidden.write_text("\n".join(lines) + "\n")
    os.utime(hidden, (T0 + number, T0 + number))
    hidden.replace(path)


def corrections(changes: list[Row]) -> pa.Table:
    """Return one correction of each kind for sessions that are there, among them cold ones, in several shards."""
    live = {(r["session_key"], r["session_start"]): r for r in sorted(changes, key=lambda r: r["batch_id"])}
    there = sorted(
        (r for r in live.values() if r["op"] == "upsert"), key=lambda r: (r["session_end"], r["session_key"])
    )
    oldest, newest, middle = there[:4], there[-3:], there[len(there) // 2]
    rows: list[Row] = []
    rows += [{"kind": "tombstone", **correction_of(r, "session_key", "session_start", "revision")} for r in oldest]
    rows += [
        {"kind": "tombstone", **correction_of(r, "session_key", "session_start"), "revision": r["revision"] + 7}
        for r in newest[:1]
    ]
    put = correction_of(newest[1], "session_start", "session_end", "event_count", "state")
    remove = correction_of(newest[1], "session_start", "revision")
    rows += [{"kind": "replace", "remove": [remove], "put": [{**put, "start_time": put["end_time"]}]} | _key(newest[1])]
    restated = correction_of(middle, "session_start", "session_end", "event_count", "state")
    rows += [{"kind": "restate", **restated} | _key(middle), {"kind": "no such kind"} | _key(middle)]
    rows = [{"correction_id": f"c{i}", "job": "test", "created_at": 0, **row} for i, row in enumerate(rows)]
    return pa.Table.from_pylist(rows, schema=schemas.CORRECTIONS_SCHEMA)


def _key(row: Row) -> Row:
    return {"key": row["session_key"]}


def run_once(spark: SparkSession, lake: Lake, on_commit: Callable[[Row], None] | None = None) -> None:
    run(spark, lake.config, once=True, on_commit=on_commit)


def undisturbed(spark: SparkSession, kind: type[AnyLake], root: Path) -> AnyLake:
    """Return a pipeline that ran all of its input, a file a batch, without corrections."""
    lake = kind(root / "lake", root / "events")
    lake.write_files(range(FIRST[0], SECOND[-1] + 1))
    run_once(spark, lake)
    return lake


def half_done(spark: SparkSession, root: Path, kind: type[AnyLake] = Lake) -> AnyLake:  # type: ignore[assignment]
    """Return a pipeline that ran the first half of its input; the second one, corrections and all, waits."""
    lake = kind(root / "lake", root / "events")
    lake.write_files(FIRST)
    run_once(spark, lake)
    lake.correct(spark)
    lake.write_files(SECOND)
    return lake


@contextmanager
def crash_at(
    monkeypatch: pytest.MonkeyPatch, point: str, nth: int = 1, action: Callable[[], None] | None = None
) -> Iterator[list[str]]:
    """Raise CrashError in the driver the n-th time it comes to a point, or do something else there; yield the points it came to."""
    seen: list[str] = []

    def hit(name: str) -> None:
        seen.append(name)
        if name == point and seen.count(name) == nth:
            if action is None:
                raise CrashError(name)
            action()

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", hit)
        yield seen


def run_to_the_end(spark: SparkSession, half: AnyLake, root: Path) -> Undisturbed[AnyLake]:
    """Return a copy of a pipeline that ran the rest of its input, and the failpoints on the way."""
    lake = half.copy(root / "lake")
    with pytest.MonkeyPatch.context() as patch, crash_at(patch, "none") as seen:
        run_once(spark, lake)
    points = list(dict.fromkeys(seen))
    assert points[:2] == ["term_begun", "computed"]
    # Of all hits: if a later batch is the first with rows for a side table, that table's points come last.
    assert seen[-2:] == ["before_changelog", "after_changelog"], seen
    return lake, points


def crashes(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, point: str, nth: int = 1) -> None:
    """Run until a point is reached; fail where it is not."""
    with crash_at(monkeypatch, point, nth), pytest.raises(Exception, match="CrashError"):
        run_once(spark, lake)


def killed_run(
    lake: Lake,
    kill_at: str | None = None,
    once_file: Path | None = None,
    config: Path | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a lake's pipeline in a process of its own that kills itself, or its worker, at a point; under these variables, too."""
    return run_killed(config or lake.path, kill_at, once_file, **variables)


def run_killed(
    config: Path, kill_at: str | None = None, once_file: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line on a config, as `killed_run` does."""
    env = {**os.environ, "PYTHONFAULTHANDLER": "0", **variables}
    if kill_at:
        env["SESSIONLAKE_KILL_AT"] = kill_at
    if once_file:
        once_file.touch()
        env["SESSIONLAKE_KILL_ONCE"] = str(once_file)
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(config), "--once"]
    return subprocess.run(command, env=env, cwd=config.parent, capture_output=True, text=True, timeout=400, check=False)


def assert_killed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr


def assert_reconciles(lake: Lake) -> None:
    """Check that each batch was committed once, and that its counts add up and are the rows of the side tables."""
    commits = lake.commits()
    assert [c["batch_id"] for c in commits] == list(range(len(commits)))
    events_in = (schemas.LATE_EVENTS, schemas.DEAD_LETTERS)
    rows = ([r for r in lake.rows(name) if r.get("kind", "event") == "event"] for name in events_in)
    late, dead = ([r["batch_id"] for r in some if not r.get("partly")] for some in rows)
    outcomes = [(r["batch_id"], r["outcome"]) for r in lake.rows(schemas.CORRECTION_OUTCOMES)]
    for commit in commits:
        counts, batch = commit["counts"], commit["batch_id"]
        assert counts.get("input", 0) == sum(counts.get(n, 0) for n in schemas.OUTCOMES)
        assert (counts.get("late", 0), counts.get("dead", 0)) == (late.count(batch), dead.count(batch))
        for name in (schemas.APPLIED, schemas.STALE, schemas.EXPIRED, schemas.MALFORMED):
            assert counts.get(name, 0) == outcomes.count((batch, name)), name


def assert_same(lake: Lake, expected: Lake) -> None:
    assert_reconciles(lake)
    got, wanted = lake.content(), expected.content()
    for name, rows in wanted.items():
        assert got[name] == rows, f"{name}: {got[name]} is not {rows}"


def assert_stands_crashes(
    spark: SparkSession, lake: Lake, expected: Lake, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Check a pipeline that dies before, between and after its commits, in batch after batch, loses its stores and gets fewer shards.

    `state` is the kind of the rows of the table that the state is restored from.
    """
    crashes(spark, lake, monkeypatch, f"before_{state}", nth=2)
    crashes(spark, lake, monkeypatch, f"after_{state}")
    shutil.rmtree(lake.stores)
    crashes(spark, lake, monkeypatch, "before_changelog", nth=2)
    lake.configure(shards=2)
    crashes(spark, lake, monkeypatch, "after_changelog")
    run_once(spark, lake)
    assert_same(lake, expected)


def assert_stands_sigkill(spark: SparkSession, lake: Lake, expected: Lake, point: str) -> None:
    """Check a pipeline whose driver is killed at a point."""
    assert_killed(killed_run(lake, point))
    run_once(spark, lake)
    assert_same(lake, expected)


def assert_stands_sigkill_of_a_worker(lake: Lake, expected: Lake, point: str) -> None:
    """Check a pipeline one of whose workers is killed at a point: the run goes on."""
    once = lake.root / "once"
    done = killed_run(lake, point, once)
    assert done.returncode == 0, done.stderr
    assert not once.exists(), "no worker was killed"
    assert_same(lake, expected)


def assert_stands_sigkill_in_a_restore(lake: Lake, expected: Lake) -> None:
    """Check a pipeline that lost its stores, and whose workers are killed each time a store has a part of its state, and once.

    The first run comes to nothing. The second one finds stores that are not whole, and goes on though it loses one more worker.
    """
    # Workers import the package anew, so that theirs must be another one.
    code = lake.root / "code"
    shutil.copytree(Path(shard.__file__).parents[1], code / "sessionlake", ignore=shutil.ignore_patterns("__pycache__"))
    module = code / "sessionlake/engine/shard.py"
    text = module.read_text()
    module.write_text(text.replace(f"_WRITTEN_AT_A_TIME = {shard._WRITTEN_AT_A_TIME:_}\n", "_WRITTEN_AT_A_TIME = 2\n"))
    assert module.read_text() != text
    parts = {"PYTHONPATH": os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")])}
    batches = len(lake.commits())
    shutil.rmtree(lake.stores)
    failed = killed_run(lake, "worker_restoring", **parts)
    assert failed.returncode not in (0, -signal.SIGKILL), failed.stdout + failed.stderr
    assert len(lake.commits()) == batches
    there = {int(store.name) for store in lake.stores.glob("[0-9]")}
    assert there, "no store has a part"
    once = lake.root / "once"
    done = killed_run(lake, "worker_restoring", once, **parts)
    assert done.returncode == 0, done.stderr
    assert not once.exists(), "no worker was killed"
    places = lake.commits()[batches]["places"]
    # A shard with little state may have been restored, as a whole, before a worker of the first run was killed.
    assert places["restored"], places
    assert {0, 1, 2} - {*places["restored"]} <= there, places
    assert set(places["causes"]) <= {"missing", "stale", "layout"}
    assert_same(lake, expected)
