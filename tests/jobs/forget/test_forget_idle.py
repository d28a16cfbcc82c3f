"""What a stream does for `forget` while it has no input, and a proof that can't look everywhere."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sessionlake.engine.pending import mark, marked, remove_all_marked
from sessionlake.errors import BusyError
from sessionlake.jobs.forget.exclusive import one_at_a_time
from sessionlake.jobs.forget.keys import Keys
from sessionlake.jobs.forget.lake import Holder
from sessionlake.jobs.forget.proof import Proof, by_partition
from sessionlake.jobs.forget.wait_budget import WaitBudget
from sessionlake.store.segmented import SegmentedSessionStore, segment_interval
from sessionlake.stream.queries import run_to_end
from sessionlake.warehouse.batch_commit import Places
from tests.support import make_config


class Query:
    """A query without input, which ends when it was waited for three times."""

    def __init__(self) -> None:
        self.waited: list[int] = []

    def awaitTermination(self, seconds: int) -> bool:  # noqa: N802 (Spark's name)
        self.waited.append(seconds)
        return len(self.waited) == 3

    def stop(self) -> None:
        self.waited.append(0)


@pytest.mark.parametrize("once", [True, False])
def test_a_query_without_input_leaves_time_for_other_work(tmp_path: Path, once: bool) -> None:  # noqa: FBT001
    query, done = Query(), []
    writer: Any = SimpleNamespace(trigger=lambda **_: SimpleNamespace(start=lambda: query))
    run_to_end(make_config(tmp_path), writer, once=once, meanwhile=lambda: done.append(len(query.waited)))
    assert (done, query.waited) == ([1, 2], [1, 1, 1, 0])


def test_marked_stores_go_and_others_stay(tmp_path: Path) -> None:
    for shard in range(3):
        SegmentedSessionStore(tmp_path / str(shard), segment_interval(70)).close()
    for shard in (2, 0, 7):
        mark(tmp_path, shard)
    assert marked(tmp_path) == [0, 2, 7]
    assert remove_all_marked(tmp_path) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_proof_that_could_not_look_everywhere_is_not_clean() -> None:
    assert Proof({}, 3, [], ["source: a topic"]).clean
    unsearched = Proof({}, 0, ["stores: on worker-1"], [])
    assert not unsearched.clean
    assert unsearched.lines()[0] == "unsearched: stores: on worker-1"


def test_a_table_with_keys_for_partitions_is_unsearched() -> None:
    def table(*partitions: str) -> Any:
        return SimpleNamespace(partitioned_by=lambda: list(partitions))

    holders = {name: [Holder(name, "session_key", "key")] for name in ("by_day", "by_key")}
    lake: Any = SimpleNamespace(holders=holders, tables={"by_day": table("day"), "by_key": table("day", "session_key")})
    (line,) = by_partition(lake)
    assert line.startswith("data files of by_key: the table is partitioned by session_key, ")


def test_hosts_are_those_of_the_batch() -> None:
    here = socket.gethostname()
    assert Places((f"{here}/1", f"{here}/2", "a/b/7")).hosts == ["a/b", here]
    assert Places().hosts == []


def test_keys_are_named_by_line_and_hash() -> None:
    keys = Keys.of(["", "b", "a", "b"])
    assert keys.labels == {"a": "key of line 3 (sha256 ca978112)", "b": "key of line 2 (sha256 3e23e816)"}


def test_two_erasures_wait_for_each_other(tmp_path: Path) -> None:
    config, left = make_config(tmp_path), [True, False]
    with (
        one_at_a_time(config, lambda: pytest.fail("it is free")),
        pytest.raises(BusyError, match="another run is at work on pipeline 'test'"),
        one_at_a_time(config, lambda: left.pop(0)),
    ):
        pytest.fail("both at once")
    assert left == []
    with one_at_a_time(config, lambda: False):
        pass


def test_all_waits_of_a_run_have_its_time_together() -> None:
    now = [0.0]
    waiting = WaitBudget(10_000_000, lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds))
    first = waiting.until_late()
    assert [first() for _ in range(3)] == [True] * 3
    # What a run does between two waits is none.
    now[0] += 3600
    second = waiting.until_late()
    found = [second() for _ in range(4)]
    assert found == [True, True, True, False]
    assert now[0] == 3600 + 12
    assert not waiting.until_late()()


def test_a_runs_own_work_uses_up_none_of_its_time_to_wait() -> None:
    now = [0.0]
    waiting = WaitBudget(10_000_000, lambda: now[0], lambda seconds: now.__setitem__(0, now[0] + seconds))
    wait = waiting.until_late()
    for _ in range(6):
        # Files are written again, and the commit is refused.
        now[0] += 660
        assert wait()
    assert not wait()
    assert waiting.waited_s == 12
