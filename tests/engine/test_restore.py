"""The local stores are a cache: whatever is lost, damaged or laid out otherwise comes back from the tables."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionlake.engine import coordinator
from sessionlake.engine.exchange import wire_rows
from sessionlake.engine.operator import BatchContext, Operator
from sessionlake.engine.pending import Pending
from sessionlake.engine.shard import ShardTask
from sessionlake.engine.spark import GENERATED_CODE
from sessionlake.errors import StoreError
from sessionlake.warehouse import schemas
from tests.engine.crash_support import (
    FIRST,
    SECOND,
    Lake,
    assert_same,
    assert_stands_sigkill_in_a_restore,
    crashes,
    run_once,
)


def delete_all(stores: Path) -> None:
    shutil.rmtree(stores)


def delete_stores_but_pending(stores: Path) -> None:
    """Delete stores whose last batch still waits beside them to be applied."""
    assert len(list(stores.glob("*.pending/*.arrow"))) == 3
    for number in range(3):
        shutil.rmtree(stores / str(number))


def delete_pending(stores: Path) -> None:
    for directory in stores.glob("*.pending"):
        shutil.rmtree(directory)


def truncate_pending(stores: Path) -> None:
    for file in stores.glob("*.pending/*.arrow"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty_pending(stores: Path) -> None:
    for file in stores.glob("*.pending/*.arrow"):
        file.write_bytes(b"")


def flip_a_byte_of_current(stores: Path) -> None:
    for file in stores.glob("*/CURRENT"):
        content = bytearray(file.read_bytes())
        content[30] ^= 1
        file.write_bytes(content)


def delete_current(stores: Path) -> None:
    for file in stores.glob("*/CURRENT"):
        file.unlink()


def delete_tables_of_a_store(stores: Path) -> None:
    files = list(stores.glob("*/*.run"))
    assert files
    for file in files:
        file.unlink()


def flip_bytes_of_tables(stores: Path) -> None:
    for file in stores.glob("*/*.run"):
        content = bytearray(file.read_bytes())
        content[10] ^= 1
        file.write_bytes(content)


def mark_to_forget(stores: Path) -> None:
    """Ask, as the job `forget` does, for each store's removal: the driver's first act, so that the tasks find none."""
    for number in range(3):
        (stores / f"{number}.forget").touch()


def test_pending_writes_are_for_the_store_they_were_computed_on(tmp_path: Path) -> None:
    pending, writes = Pending(tmp_path), pa.table({"x": [1]})
    pending.write("second", "first", writes)
    found = pending.read("second", "first")
    assert found is not None
    assert found.equals(writes)
    assert [pending.read("second", None), pending.read("second", "zeroth"), pending.read("third", "first")] == [
        None
    ] * 3


def test_request_to_forget_stays_where_the_store_cannot_be_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "0").symlink_to("elsewhere")
    (tmp_path / "0.forget").touch()
    task = ShardTask(cast(Operator, None), BatchContext(0, "c", {}), (), str(tmp_path), (None,))
    with pytest.raises(StoreError, match="can't be removed"):
        list(task.run(wire_rows([(0, "kind", pa.table({"x": [1]}))])))
    assert (tmp_path / "0.forget").exists()


QUICK = {flip_bytes_of_tables: "corrupt"}
SLOW = {
    mark_to_forget: "missing",
    delete_stores_but_pending: "missing",
    delete_all: "missing",
    delete_pending: "stale",
    empty_pending: "corrupt",
    truncate_pending: "corrupt",
    flip_a_byte_of_current: "corrupt",
    delete_current: "corrupt",
    delete_tables_of_a_store: "corrupt",
}


@pytest.mark.parametrize(
    ("damage", "cause"), [*QUICK.items(), *(pytest.param(*d, marks=pytest.mark.slow) for d in SLOW.items())]
)
def test_damaged_store(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path, damage: Callable[[Path], None], cause: str
) -> None:
    lake = half.copy(tmp_path / "lake")
    damage(lake.stores)
    run_once(spark, lake)
    places = lake.commits()[len(FIRST)]["places"]
    assert (places["restored"], places["causes"]) == ([0, 1, 2], {cause: 3})
    assert_same(lake, expected)


@pytest.mark.slow
def test_sigkill_between_the_parts_of_a_restore(half: Lake, expected: Lake, tmp_path: Path) -> None:
    assert_stands_sigkill_in_a_restore(half.copy(tmp_path / "lake"), expected)


@pytest.mark.slow
def test_store_deleted_during_a_run(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    run_once(spark, lake, lambda _: shutil.rmtree(lake.stores))
    assert_same(lake, expected)


@pytest.mark.slow
def test_shards_3_to_5_to_2(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    lake = half.copy(tmp_path / "lake")
    lake.configure(shards=5)
    crash_after_first_batch(spark, lake)
    lake.configure(shards=2)
    run_once(spark, lake)
    assert_same(lake, expected)


def crash_after_first_batch(spark: SparkSession, lake: Lake) -> None:
    with pytest.MonkeyPatch.context() as patch:
        crashes(spark, lake, patch, "after_changelog")


@pytest.mark.slow
def test_shards_without_any_session_are_restored_too(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path
) -> None:
    lake = half.copy(tmp_path / "lake")
    lake.configure(shards=40)
    run_once(spark, lake)
    assert_same(lake, expected)


@pytest.mark.slow
@pytest.mark.parametrize("retention", ["25 minutes", "5 hours"])
def test_retention_changed_keeps_the_stores_right(
    spark: SparkSession, half: Lake, tmp_path: Path, retention: str
) -> None:
    kept, restored = half.copy(tmp_path / "kept"), half.copy(tmp_path / "restored")
    for lake in (kept, restored):
        lake.configure(retention=retention)
    shutil.rmtree(restored.stores)
    for lake in (kept, restored):
        run_once(spark, lake)
    assert_same(kept, restored)


@pytest.mark.slow
def test_grace_changed_keeps_the_stores_right(spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path) -> None:
    kept, restored = half.copy(tmp_path / "kept"), half.copy(tmp_path / "restored")
    for lake in (kept, restored):
        lake.configure(grace="28 minutes")
    shutil.rmtree(restored.stores)
    for lake in (kept, restored):
        run_once(spark, lake)
    assert_same(kept, restored)
    assert kept.rows(schemas.LATE_EVENTS) != expected.rows(schemas.LATE_EVENTS)


@pytest.mark.slow
def test_one_store_stale_where_others_need_cold_sessions(
    spark: SparkSession, half: Lake, expected: Lake, tmp_path: Path
) -> None:
    """The stale shard must be asked what it needs once it is restored."""
    for shard in range(3):
        lake = half.copy(tmp_path / str(shard))
        shutil.rmtree(lake.stores / str(shard))
        run_once(spark, lake)
        assert lake.commits()[len(FIRST)]["places"]["restored"] == [shard]
        assert_same(lake, expected)


@pytest.mark.slow
def test_store_of_another_warehouse_is_not_taken(spark: SparkSession, half: Lake, tmp_path: Path) -> None:
    lakes = [Lake(tmp_path / name, tmp_path / "events") for name in ("fresh", "used")]
    lakes[0].write_files(FIRST)
    shutil.copytree(half.stores, lakes[1].stores)
    for lake in lakes:
        run_once(spark, lake)
    assert_same(lakes[1], lakes[0])
    assert len(lakes[0].commits()) == len(FIRST) < len(FIRST) + len(SECOND)


@pytest.mark.slow
@pytest.mark.parametrize("little", [0, 1 << 40])
def test_a_large_state_is_read_with_generated_code(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    """The code is generated for the round that restores, and for no other one."""
    name, seen = "spark.sql.codegen.factoryMode", list[str | None]()
    before = spark.conf.get(name, None)
    shards = coordinator.on_shards

    def noted(wire: DataFrame, *others: Any) -> DataFrame:
        seen.append(wire.sparkSession.conf.get(name, None))
        return shards(wire, *others)

    lake = Lake(tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run_once(spark, lake)
    delete_all(lake.stores)
    lake.write_files(range(SECOND[0], SECOND[0] + 1))
    monkeypatch.setattr(coordinator, "_LITTLE_STATE", little)
    monkeypatch.setattr(coordinator, "on_shards", noted)
    run_once(spark, lake)
    generated = GENERATED_CODE[name]
    assert before != generated
    assert seen[-1] == (before if little else generated)
    assert spark.conf.get(name, None) == before
