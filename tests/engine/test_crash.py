"""A driver or a worker that dies at any point loses nothing and counts nothing twice: tables equal an undisturbed run's. By operator."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.operators import OPERATORS, named
from sessionlake.config.unions import leaves
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import read_batches
from tests.engine.crash_support import (
    Undisturbed,
    assert_killed,
    assert_reconciles,
    assert_same,
    assert_stands_sigkill_in_a_restore,
    assert_stands_sigkill_of_a_worker,
    crash_at,
    crashes,
    half_done,
    killed_run,
    run_once,
    run_to_the_end,
)
from tests.operator_forms import FORMS
from tests.operator_lake import OperatorLake
from tests.operators_table import LAKES, SessionLake

# What the JVM sees of a killed worker hangs on what it had written to it and on which end it looks at first.
WORKER_GONE = "Python worker exited unexpectedly|Connection reset|Broken pipe"


def by_operator(*quick: str) -> pytest.MarkDecorator:
    """Run a test once for each operator; in `make test` only for those named."""
    names = [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in FORMS]
    return pytest.mark.parametrize("half", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def half(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> OperatorLake:
    if request.param == "session":
        return request.getfixturevalue("session_half")
    return half_done(spark, tmp_path_factory.mktemp(request.param), FORMS[request.param])


@pytest.fixture(scope="module")
def undisturbed(
    request: pytest.FixtureRequest, spark: SparkSession, half: OperatorLake, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed[OperatorLake]:
    if type(half) is SessionLake:
        return request.getfixturevalue("session_undisturbed")
    return run_to_the_end(spark, half, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def expected(undisturbed: Undisturbed[OperatorLake]) -> OperatorLake:
    return undisturbed[0]


@pytest.fixture
def points(undisturbed: Undisturbed[OperatorLake]) -> list[str]:
    return undisturbed[1]


def test_every_operator_has_a_pipeline_here_and_one_with_unique_for_if_it_takes_that() -> None:
    assert list(LAKES) == list(OPERATORS)
    sections = {name: leaves(named(entry.model)) for name, entry in OPERATORS.items()}
    able = {name for name, some in sections.items() if any(one.NOT_UNIQUE is None for one in some)}
    assert {f"unique {name}" for name in able} <= FORMS.keys()


@by_operator("session")
def test_input_has_every_kind_of_row(spark: SparkSession, expected: OperatorLake) -> None:
    expected.check()
    assert_reconciles(expected)
    corrections = len(expected.rows(schemas.CORRECTIONS))
    assert len(expected.rows(schemas.CORRECTION_OUTCOMES)) == corrections
    wanted = expected.outcomes if corrections else ()
    assert {name for name in wanted if not expected.totals()[name]} == set()
    batches = read_batches(Tables.of(spark, expected.config)).orderBy("batch_id").collect()
    assert [batch.commit_id for batch in batches] == [commit["commit_id"] for commit in expected.commits()]


@by_operator()
def test_driver_fails_at_every_point_with_stores_lost_and_shards_cut_anew(
    spark: SparkSession,
    half: OperatorLake,
    expected: OperatorLake,
    points: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = half.copy(tmp_path / "lake")
    for number, point in enumerate(points):
        crashes(spark, lake, monkeypatch, point)
        if number == len(points) // 2:
            shutil.rmtree(lake.stores)
    lake.configure(shards=2)
    crashes(spark, lake, monkeypatch, "before_changelog")
    run_once(spark, lake)
    assert_same(lake, expected)


@by_operator()
def test_executor_lost_between_its_work_and_the_commit(
    spark: SparkSession, half: OperatorLake, expected: OperatorLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its output lies in the warehouse already; its stores, pending files too, are restored with the next batch."""
    lake = half.copy(tmp_path / "lake")
    with crash_at(monkeypatch, "before_changelog", 1, lambda: shutil.rmtree(lake.stores)):
        run_once(spark, lake)
    assert_same(lake, expected)


@by_operator("session")
@pytest.mark.timeout(600)
def test_sigkill_of_the_driver_then_of_a_worker_whose_task_is_not_tried_again(
    spark: SparkSession, half: OperatorLake, expected: OperatorLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = half.copy(tmp_path / "lake")
    assert_killed(killed_run(lake, "after_changelog"))
    # In this order: the run that dies at "worker_computed" may have applied what waits in every shard before it ends.
    for point in ("worker_applied", "worker_computed"):
        # A file for each point: a worker of the other task may still be on its way to the first one's.
        once = tmp_path / point
        once.touch()
        with monkeypatch.context() as patch:
            patch.setitem(spark.sparkContext.environment, "SESSIONLAKE_KILL_AT", point)
            patch.setitem(spark.sparkContext.environment, "SESSIONLAKE_KILL_ONCE", str(once))
            # The tests' local[2] tries a task once only.
            with pytest.raises(Exception, match=WORKER_GONE):
                run_once(spark, lake)
        assert not once.exists()
    run_once(spark, lake)
    assert_same(lake, expected)


@by_operator()
@pytest.mark.timeout(1200)
def test_sigkill_of_the_driver_at_every_point(
    spark: SparkSession, half: OperatorLake, expected: OperatorLake, points: list[str], tmp_path: Path
) -> None:
    lake = half.copy(tmp_path / "lake")
    for point in points:
        assert_killed(killed_run(lake, point))
    run_once(spark, lake)
    assert_same(lake, expected)


@by_operator()
@pytest.mark.parametrize("point", ["worker_computed:2", "worker_applied"])
def test_sigkill_of_a_worker(half: OperatorLake, expected: OperatorLake, tmp_path: Path, point: str) -> None:
    assert_stands_sigkill_of_a_worker(half.copy(tmp_path / "lake"), expected, point)


@by_operator()
def test_sigkill_between_the_parts_of_a_restore(half: OperatorLake, expected: OperatorLake, tmp_path: Path) -> None:
    assert_stands_sigkill_in_a_restore(half.copy(tmp_path / "lake"), expected)
