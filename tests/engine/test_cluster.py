"""A real standalone cluster, a master and two workers: results as in local mode, shards stay, losses stay small."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from infra.spark.cluster import Cluster
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from tests.engine.cluster_support import BATCHES, SHARDS, cluster_config, write_batches

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(400)]

EXECUTOR_KILLED, WORKER_KILLED = 10, 17
"""The batch during which an executor dies, the one before which a whole worker does."""
PROJECT = Path(__file__).parents[2]
COLUMNS = ("op", "session_key", "string(session_start)", "string(session_end)", "event_count", "total", "last", "slow")

SESSIONS = """
with events as (select * from read_json('{files}', columns = {{key: 'varchar', time_us: 'bigint', v: 'bigint'}})),
marked as (
  select *, coalesce(time_us - lag(time_us) over (partition by key order by time_us) > 10, true)::int as opens from events
),
numbered as (select *, sum(opens) over (partition by key order by time_us rows unbounded preceding) as session from marked)
select key, min(time_us), max(time_us), count(*), sum(v)::bigint from numbered group by key, session order by all
"""


@dataclass(frozen=True)
class Ran:
    """What the cluster's driver committed, and where."""

    root: Path
    commits: list[dict[str, Any]]

    def where(self, batch: int) -> list[str]:
        """Return the executor of each shard."""
        places = self.commits[batch]["places"]
        return [places["executors"][number] for number in places["at"]]

    def restored(self, batch: int) -> list[int]:
        return self.commits[batch]["places"]["restored"]

    @property
    def shrunk(self) -> int:
        """The first batch without the killed worker."""
        return next(b for b in range(WORKER_KILLED, BATCHES) if len(set(self.where(b))) == 1)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("cluster")
    root = folder / "pipeline"
    root.mkdir()
    cluster_config(root)
    write_batches(root)
    with Cluster(folder / "spark") as cluster:
        told = {
            "properties": str(cluster.properties),
            "root": str(root),
            "once": str(folder / "once"),
            "kill_executor_after": EXECUTOR_KILLED - 1,
            "kill_worker_after": WORKER_KILLED - 1,
            "worker": cluster.pid("worker-1"),
        }
        command = [sys.executable, "-m", "tests.engine.cluster_driver", json.dumps(told)]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT, env=env, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert not (folder / "once").exists()
    return Ran(root, [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])


def test_changes_equal_those_of_local_mode(spark: SparkSession, ran: Ran, tmp_path: Path) -> None:
    config = cluster_config(tmp_path, "store")
    (tmp_path / "events").rmdir()
    (tmp_path / "events").symlink_to(ran.root / "events")
    local: list[BatchCommit] = []
    run(spark, config, once=True, on_commit=local.append)
    by_batch = [
        [(c["batch_id"], c["counts"], c["state"]) for c in commits]
        for commits in (ran.commits, [batch.metadata() for batch in local])
    ]
    assert len(local) == BATCHES
    assert by_batch[0] == by_batch[1]
    cluster, local_rows = (
        Tables(spark, str(root / "warehouse"), CHANGELOG)[schemas.CHANGELOG]
        .read()
        .selectExpr(*COLUMNS, "revision")
        .collect()
        for root in (ran.root, tmp_path)
    )
    assert sorted(cluster) == sorted(local_rows)


def test_sessions_equal_duckdb(spark: SparkSession, ran: Ran) -> None:
    from sessionlake.warehouse.views import merged_rows

    rows = merged_rows(Tables(spark, str(ran.root / "warehouse"), CHANGELOG)).selectExpr(
        "session_key", "unix_micros(session_start)", "unix_micros(session_end)", "event_count", "total"
    )
    with duckdb.connect() as db:
        expected = db.execute(SESSIONS.format(files=f"{ran.root}/events/*.json")).fetchall()
    assert len(expected) > 200
    assert sorted(map(tuple, rows.collect())) == expected


def test_shards_stay_on_their_executors(ran: Ran) -> None:
    """Also while one shard takes longer than Spark lets tasks wait by default, and the other executor has nothing to do."""
    moves = {EXECUTOR_KILLED, ran.shrunk}
    quiet = [(b, shard) for b in range(1, BATCHES) if b not in moves for shard in range(SHARDS)]
    stayed = [ran.where(b)[shard] == ran.where(b - 1)[shard] and shard not in ran.restored(b) for b, shard in quiet]
    share = sum(stayed) / len(stayed)
    sys.stdout.write(f"\n{share:.1%} of {len(stayed)} shard tasks ran where their store was\n")
    assert share >= 0.95


def test_shards_are_spread_evenly_from_the_first_batch(ran: Ran) -> None:
    for batch in range(EXECUTOR_KILLED):
        assert sorted(ran.where(batch).count(e) for e in set(ran.where(batch))) == [SHARDS // 2] * 2


def test_killed_executors_shards_go_to_its_successor_only(ran: Ran) -> None:
    """In the batch of the kill itself, which waits for it."""
    before, during = ran.where(EXECUTOR_KILLED - 1), ran.where(EXECUTOR_KILLED)
    moved = {shard for shard in range(SHARDS) if before[shard] != during[shard]}
    assert len(moved) == SHARDS // 2
    assert len({before[shard] for shard in moved}) == len({during[shard] for shard in moved}) == 1
    assert {during[shard] for shard in moved} & set(before) == set()
    assert ran.where(WORKER_KILLED - 1) == during


def test_killed_worker_costs_its_own_shards_only(ran: Ran) -> None:
    before, after = ran.where(ran.shrunk - 1), ran.where(ran.shrunk)
    lost = {shard for shard in range(SHARDS) if before[shard] != after[shard]}
    assert len(lost) == SHARDS // 2
    assert set(ran.restored(ran.shrunk)) == lost


def test_nothing_is_restored_but_after_the_loss_of_a_worker(ran: Ran) -> None:
    """The successor of a killed executor finds the stores on its worker's disk."""
    assert [b for b in range(BATCHES) if ran.restored(b)] == [ran.shrunk]
