"""Every fault that an operator of a pipeline may meet, by operator: what it sends in the end is what an oracle says. All slow."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import ExitCode, PipelineStateError
from sessionlake.stream import clock
from tests.disks import disk, fill
from tests.engine.crash_support import (
    Lake,
    assert_killed,
    assert_reconciles,
    assert_same,
    assert_stands_sigkill_of_a_worker,
    crash_at,
    killed_run,
    run_once,
    undisturbed,
)
from tests.operator_forms import FORMS, ON_ROCKSDB
from tests.operator_lake import OperatorLake
from tests.operators_table import FILES, LAKES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
UNIQUE = [name for name in FORMS if name.startswith("unique")]
KB, HOUR_NS = 1000, 3_600_000_000_000


@pytest.fixture(scope="module", params=[*LAKES, "outer join", *UNIQUE, *ON_ROCKSDB])
def expected(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> OperatorLake:
    return undisturbed(spark, FORMS[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture
def lake(expected: OperatorLake, tmp_path: Path) -> OperatorLake:
    """A pipeline that has run nothing of the same input."""
    return type(expected)(tmp_path / "lake", expected.events)


@pytest.fixture
def fed(expected: OperatorLake, tmp_path: Path) -> OperatorLake:
    """A pipeline whose input comes a file at a time."""
    return type(expected)(tmp_path / "lake", tmp_path / "events")


def assert_answered(lake: OperatorLake) -> None:
    """Check that each input row was counted once, and that the rows are the oracle's."""
    assert_reconciles(lake)
    assert lake.sent() == lake.answer()


def has_its_batches(lake: OperatorLake, expected: OperatorLake) -> bool:
    """Say whether the batches are those of an undisturbed run; if not, check that nothing is lost or doubled.

    A driver that ends may have planned a file that the next one then reads together with the one after it. What is late, and what
    a processor sends, depends on the batches.
    """
    read, wanted = ([commit["counts"].get("input", 0) for commit in one.commits()] for one in (lake, expected))
    if read == wanted:
        return True
    assert_reconciles(lake)
    assert len(read) < len(wanted)
    assert sum(read) == sum(wanted)
    return False


def run_file_by_file(spark: SparkSession, lake: OperatorLake, before: Callable[[int], object]) -> None:
    """Run a batch for each file, in a run of its own, after something was done to the pipeline.

    A join sends what waits at the end of each run: batches differ from those of one run, and the rows are the same.
    """
    for number in FILES:
        lake.write_files(range(number, number + 1))
        before(number)
        run_once(spark, lake)
    assert_answered(lake)


def test_undisturbed(expected: OperatorLake) -> None:
    expected.check()
    assert len(expected.answer()) > 5
    assert_answered(expected)


def test_sigkill_at_every_failpoint(spark: SparkSession, lake: OperatorLake, expected: OperatorLake) -> None:
    probe = type(lake)(lake.root.with_name("probe"), lake.events)
    with pytest.MonkeyPatch.context() as patch, crash_at(patch, "none") as seen:
        run_once(spark, probe)
    for point in dict.fromkeys(seen):
        assert_killed(killed_run(lake, point))
    run_once(spark, lake)
    assert_answered(lake)
    # Another pipeline: a point to which only the last batch comes leaves no batch to this one.
    other = type(lake)(lake.root.with_name("other"), lake.events)
    assert_stands_sigkill_of_a_worker(other, expected, "worker_applied")
    assert_answered(other)


def test_lost_stores(spark: SparkSession, fed: OperatorLake) -> None:
    run_file_by_file(spark, fed, lambda _: shutil.rmtree(fed.stores, ignore_errors=True))


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_damaged_stores(spark: SparkSession, fed: OperatorLake, damage: str) -> None:
    chance = random.Random(damage)

    def harm(number: int) -> None:
        files = [file for file in sorted(fed.stores.rglob("*")) if file.is_file() and file.stat().st_size]
        assert files or not number
        for file in chance.sample(files, min(8, len(files))):
            at = chance.randrange(file.stat().st_size)
            if damage == "cut":
                os.truncate(file, at)
            else:
                content = bytearray(file.read_bytes())
                content[at] ^= 0xFF
                file.write_bytes(content)

    run_file_by_file(spark, fed, harm)


def test_other_numbers_of_shards(spark: SparkSession, fed: OperatorLake) -> None:
    run_file_by_file(spark, fed, lambda number: fed.configure(shards=(3, 1, 5, 2)[number]))


def test_two_drivers_at_once(spark: SparkSession, lake: OperatorLake, expected: OperatorLake) -> None:
    other = lake.path.with_name("other.toml")
    other.write_text(lake.path.read_text().replace('store = "store"', 'store = "other-store"'))
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda config: killed_run(lake, config=config), (lake.path, other)))
    codes = [one.returncode for one in done]
    # Whoever comes second ends in one line, unless the first one was done by then.
    assert set(codes) <= {0, ExitCode.FENCED, ExitCode.USER, ExitCode.TRY_AGAIN}, [one.stderr for one in done]
    assert all("Traceback" not in one.stderr for one in done)
    run_once(spark, lake)
    if has_its_batches(lake, expected):
        assert_same(lake, expected)
        assert_answered(lake)


def test_clock_set_forward_and_back(spark: SparkSession, fed: OperatorLake, monkeypatch: pytest.MonkeyPatch) -> None:
    now, planned, ahead = time.time_ns, clock.clock_of, 0
    monkeypatch.setattr(time, "time_ns", lambda: now() + ahead)
    # Spark plans batches by the JVM's clock, which is the same machine's.
    monkeypatch.setattr(clock, "clock_of", lambda offsets: planned(offsets) + ahead // 1000)
    fed.write_files(range(2))
    run_once(spark, fed)
    fed.write_files(range(2, 3))
    ahead = -HOUR_NS
    assert_refused(spark, fed)
    ahead = 0
    run_once(spark, fed)
    fed.write_files(range(3, 4))
    ahead = HOUR_NS
    run_once(spark, fed)
    ahead = 0
    assert_refused(spark, fed)
    assert_answered(fed)


def assert_refused(spark: SparkSession, lake: OperatorLake) -> None:
    """Check that a run under a clock that is behind the last commit does nothing."""
    before = lake.content()
    with pytest.raises(PipelineStateError, match="clock"):
        run_once(spark, lake)
    assert lake.content() == before


@pytest.mark.parametrize(("place", "left"), [("store", 64 * KB), ("warehouse", 200 * KB), ("checkpoint", 4 * KB)])
def test_a_disk_that_is_full(lake: OperatorLake, expected: OperatorLake, place: str, left: int) -> None:
    paths = {"store": lake.stores, "warehouse": lake.warehouse, "checkpoint": Path(lake.config.checkpoint)}
    with disk(paths[place], 200) as path:
        other = fill(path, left)
        done = killed_run(lake)
        assert done.returncode not in (0, -signal.SIGKILL), done.stdout
        assert "Traceback" not in done.stderr, done.stderr
        other.unlink()
        done = killed_run(lake)
        assert done.returncode == 0, done.stderr
        assert_same(lake, expected)
        assert_answered(lake)


def test_sigterm_at_random_moments(spark: SparkSession, lake: OperatorLake, expected: OperatorLake) -> None:
    chance = random.Random(lake.changelog)
    command = [str(Path(sys.executable).with_name("sessionlake")), "run", str(lake.path), "--once"]
    for _ in range(4):
        stopped_at(command, lake, chance.uniform(1, 20))
    run_once(spark, lake)
    if has_its_batches(lake, expected):
        assert_answered(lake)


def stopped_at(command: list[str], lake: Lake, seconds: float) -> None:
    """Run a command, and send it SIGTERM after some seconds if it runs by then."""
    with subprocess.Popen(command, cwd=lake.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as one:
        try:
            one.wait(seconds)
        except subprocess.TimeoutExpired:
            one.send_signal(signal.SIGTERM)
        errors = one.communicate(timeout=120)[1]
        assert one.returncode in (0, 128 + signal.SIGTERM, -signal.SIGTERM), errors
