"""A shard moves between disks, batches are abandoned: no store that is behind is ever computed with. No Spark."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.store_engines import ENGINES, StoreEngine
from sessionlake.engine.shard import KEPT, NEW, RESTORED
from sessionlake.errors import StoreError
from sessionlake.store.api import OpenSegments
from sessionlake.store.engines import opened_by
from tests.engine.shard_pipeline import Pipeline, Totals, TotalsStore
from tests.support import examples


def test_shard_that_comes_back_is_restored_not_taken_up_where_it_was_left(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    assert pipeline.batch("a", ["x"]) == (NEW, {"x": 1})
    assert pipeline.batch("a", ["x"]) == (KEPT, {"x": 2})
    assert pipeline.batch("b", ["x", "y"]) == (RESTORED, {"x": 3, "y": 1})
    assert pipeline.batch("a", ["x", "y"]) == (RESTORED, {"x": 4, "y": 2})
    assert pipeline.batch("a", ["y"]) == (KEPT, {"y": 3})
    assert pipeline.causes == ["missing", "stale"]


def test_restore_in_parts_that_was_cut_off_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline, parts = Pipeline(tmp_path), list[str]()

    def cut_off(point: str) -> None:
        if point == "worker_restoring":
            parts.append(point)
            if len(parts) == 2:
                raise KeyboardInterrupt

    assert pipeline.batch("a", ["x", "y", "z", "z"])[0] == NEW
    monkeypatch.setattr("sessionlake.engine.shard._WRITTEN_AT_A_TIME", 1)
    monkeypatch.setattr("sessionlake.engine.failpoints.hit", cut_off)
    with pytest.raises(KeyboardInterrupt):
        pipeline.batch("b", ["x"])
    assert pipeline.batch("b", ["x", "y", "z"]) == (RESTORED, {"x": 2, "y": 2, "z": 3})
    assert len(parts) == 2 + 3
    assert pipeline.causes == ["missing"] * 2


def test_shard_that_comes_back_before_the_other_disk_committed_is_kept(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.batch("a", ["x"])
    assert pipeline.batch("b", ["x"], committed=False) == (RESTORED, {"x": 2})
    assert pipeline.batch("a", ["x"]) == (KEPT, {"x": 2})


@examples(12)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("ab"), st.lists(st.sampled_from("xyz"), min_size=1), st.booleans(), st.sampled_from(ENGINES)
        ),
        max_size=6,
    )
)
def test_totals_are_right_wherever_the_shard_goes_on_whichever_engine(
    steps: list[tuple[str, list[str], bool, StoreEngine]],
) -> None:
    with TemporaryDirectory() as folder:
        pipeline = Pipeline(Path(folder))
        for disk, keys, committed, pipeline.engine in steps:
            before = pipeline.totals.copy()
            _, totals = pipeline.batch(disk, keys, committed=committed)
            assert totals == {key: (before + Counter(keys))[key] for key in keys}


@pytest.mark.parametrize("engine", ENGINES)
def test_store_that_another_task_holds_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: StoreEngine
) -> None:
    pipeline = Pipeline(tmp_path, engine=engine)
    pipeline.batch("a", ["x"])
    open_now, held = Totals.open_store, opened_by(engine)(tmp_path / "a" / "0")

    def open_store(operator: Totals, path: Path, opened: OpenSegments) -> TotalsStore:
        try:
            return open_now(operator, path, opened)
        except StoreError:
            held.close()
            raise

    monkeypatch.setattr(Totals, "open_store", open_store)
    assert pipeline.batch("a", ["x"]) == (KEPT, {"x": 2})


def test_variables_of_the_store_are_the_executors_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(Path("${SESSIONLAKE_STORE}"))
    monkeypatch.setenv("SESSIONLAKE_STORE", str(tmp_path / "one"))
    pipeline.batch("clicks", ["x"])
    assert (tmp_path / "one" / "clicks" / "0" / "CURRENT").exists()
    monkeypatch.setenv("SESSIONLAKE_STORE", "relative")
    with pytest.raises(StoreError, match="let its variables hold an absolute path"):
        pipeline.batch("clicks", ["x"])
    monkeypatch.delenv("SESSIONLAKE_STORE")
    with pytest.raises(
        StoreError, match=r"needs the variable 'SESSIONLAKE_STORE'.*spark\.executorEnv\.SESSIONLAKE_STORE"
    ):
        pipeline.batch("clicks", ["x"])
