"""`status`, its objects and the metrics tell how far each pipeline behind and each sink is, without Spark, in a bounded time and without a secret."""

import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import load_project
from sessionlake.jobs.followers.positions import ANSWER_S, NOTHING, Follower, Places, Reached, followers_of, read_all
from sessionlake.jobs.publish import publish
from sessionlake.jobs.publish.function import Delivery
from sessionlake.observe.exporter import Exporter
from sessionlake.observe.readings import registry_of
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import batches_after, last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from tests.project.chain_support import CLICKS, DAYS, write

SECRET = "swordfish-42"  # noqa: S105 (of nothing)
SINKS = f"""
[sink.delta]
path = "lake/out"

[sink.python]
call = "{__name__}:on_rows"
"""


def on_rows(rows: pa.Table, delivery: Delivery) -> None:
    """Take rows, as a user's function does."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "project.toml").write_text("[pipeline]\nshards = 2\n")
    (tmp_path / "clicks.toml").write_text(CLICKS + SINKS)
    (tmp_path / "days.toml").write_text(DAYS)
    (tmp_path / "events").mkdir()
    return tmp_path


@pytest.fixture
def silent() -> Iterator[int]:
    """Yield a port at which connections are taken, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def config_of(root: Path, name: str = "clicks") -> Config:
    return load_project(str(root)).configs[name]


def batch(spark: SparkSession, root: Path, number: int, *names: str) -> None:
    write(root, number)
    for name in ("clicks", *names):
        run(spark, config_of(root, name), once=True)


def told(root: Path) -> dict[str, tuple[int | None, int | None]]:
    return {one.name: (one.batch_id, one.behind) for one in followers_of(config_of(root))}


def exposed(exporter: Exporter) -> list[str]:
    assert exporter.refresh() is None
    text = generate_latest(registry_of(exporter.readings)).decode()
    return [line for line in text.splitlines() if line.startswith("sessionlake_follower")]


@pytest.mark.slow
def test_each_follower_is_told_with_its_batch_and_its_lag(spark: SparkSession, root: Path) -> None:
    batch(spark, root, 0)
    assert told(root) == {"sink.delta": (None, 1), "sink.python": (None, 1)}, "nobody has read anything"
    run(spark, config_of(root, "days"), once=True)
    exporter = Exporter(config_of(root))
    lag = 'sessionlake_follower_lag_batches{{follower="{}",pipeline="clicks"}} {:.1f}'
    assert lag.format("sink.delta", 1) in exposed(exporter)
    publish(spark, config_of(root), once=True)
    every = ("days", "sink.delta", "sink.python")
    assert told(root) == dict.fromkeys(every, (0, 0))
    # No table of the pipeline has changed: the exporter and `status --watch` look at the followers all the same.
    assert {lag.format(name, 0) for name in every} < {*exposed(exporter)}
    seconds = 'sessionlake_follower_lag_seconds{{follower="{}",pipeline="clicks"}} 0.0'
    assert {seconds.format(name) for name in every} < {*exposed(exporter)}

    for number in (1, 2):
        batch(spark, root, number)
    publish(spark, config_of(root), once=True, only="delta")
    run(spark, config_of(root, "days"), once=True)
    batch(spark, root, 3, "days")
    assert told(root) == {"days": (3, 0), "sink.delta": (2, 1), "sink.python": (0, 3)}
    batches = list(batches_after(Lake.of(config_of(root))))
    found = {one.name: one.lacks_since_us for one in followers_of(config_of(root))}
    assert found == {"days": None, "sink.delta": batches[3].committed_us, "sink.python": batches[1].committed_us}

    shown = CliRunner().invoke(main, ["status", str(root / "clicks.toml")]).output
    assert "followers    days is at batch 3; sink.delta is at batch 2, 1 behind for " in shown
    (one,) = json.loads(CliRunner().invoke(main, ["status", str(root / "clicks.toml"), "--format", "json"]).output)
    *_, function = one["followers"]
    assert function.pop("behind_seconds") > 0
    assert function == {"name": "sink.python", "kind": "sink", "batch_id": 0, "behind": 3, "unreadable": None}

    # Spark reads the same, as the stream does before a batch.
    tables = Tables.of(spark, config_of(root))
    places = Places(config_of(root), tables, tables, partial(Tables, spark))
    ids = {
        one.name: at.batch_id if isinstance(at, Reached) else at
        for one, at in read_all(config_of(root), places.followers())
    }
    assert ids == {"days": 3, "sink.delta": 2, "sink.python": 0}


@pytest.mark.slow
def test_a_pipeline_whose_tables_are_gone_is_none_any_more(spark: SparkSession, root: Path) -> None:
    batch(spark, root, 0, "days")
    assert told(root)["days"] == (0, 0)
    shutil.rmtree(config_of(root, "days").pipeline.warehouse)
    assert "days" not in told(root)


@pytest.mark.slow
def test_positions_in_a_pipeline_that_was_rebuilt_since_are_told(spark: SparkSession, root: Path) -> None:
    batch(spark, root, 0, "days")
    publish(spark, config_of(root), once=True)
    shutil.rmtree(config_of(root).driver_store_dir)
    warehouse = Path(config_of(root).pipeline.warehouse)
    shutil.copytree(warehouse / "_readers", root / "readers")
    shutil.rmtree(warehouse)
    run(spark, config_of(root), once=True)
    shutil.copytree(root / "readers", warehouse / "_readers")
    reasons = {one.name: one.unreadable for one in followers_of(config_of(root))}
    another = "another 'clicks', which was rebuilt or put back since"
    of_table = f"it has the rows of {another}"
    # The function's position went with the checkpoint, so all rows come to it anew.
    assert reasons == {"days": f"it has read {another}", "sink.delta": of_table, "sink.python": None}
    text = CliRunner().invoke(main, ["status", str(root)]).output
    assert f"clicks: its follower days can't be read: it has read {another}" in " ".join(text.split())


@pytest.mark.slow
def test_a_database_that_does_not_answer_does_not_hang_the_status(
    spark: SparkSession, root: Path, silent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch(spark, root, 0)
    monkeypatch.setenv("LOADER", SECRET)
    sink = f'[sink.postgres]\nurl = "postgresql://loader:${{env:LOADER}}@127.0.0.1:{silent}/x"\ntable = "sessions"\n'
    (root / "clicks.toml").write_text(CLICKS + SINKS + sink)
    began = time.monotonic()
    shown = CliRunner().invoke(main, ["status", str(root / "clicks.toml")])
    assert time.monotonic() - began < 3 * ANSWER_S
    assert shown.exit_code == 0
    assert "sink.delta has no batch yet, 1 behind for " in shown.output
    assert "sink.postgres NOT READABLE: sink.postgres: 'sessions' can't be reached" in shown.output
    assert SECRET not in shown.output
    exporter = Exporter(config_of(root))
    assert 'sessionlake_follower_readable{follower="sink.postgres",pipeline="clicks"} 0.0' in exposed(exporter)
    assert not [line for line in exposed(exporter) if "_lag_" in line and "postgres" in line]


@pytest.mark.slow
def test_one_that_hangs_is_begun_once_and_the_others_are_read(tmp_path: Path) -> None:
    config: Any = load_config(_small(tmp_path))
    answered, begun = threading.Event(), []

    def hang() -> Reached:
        begun.append(True)
        answered.wait()
        return Reached(7, 7)

    both = [Follower("slow", "sink", hang), Follower("quick", "sink", lambda: NOTHING)]
    try:
        for _ in range(2):
            assert [at for _, at in read_all(config, both)] == [f"no answer in {ANSWER_S:.0f} seconds", NOTHING]
        assert len(begun) == 1
    finally:
        answered.set()
    while isinstance(read_all(config, both)[0][1], str):
        pass
    assert [at for _, at in read_all(config, both)] == [Reached(7, 7), NOTHING]


def _small(root: Path) -> Path:
    (root / "project.toml").write_text("")
    (root / "clicks.toml").write_text(CLICKS)
    (root / "events").mkdir()
    return root / "clicks.toml"


def test_a_topic_without_a_checkpoint_has_nothing_and_needs_no_broker(spark: SparkSession, root: Path) -> None:
    batch(spark, root, 0)
    (root / "clicks.toml").write_text(CLICKS + '[sink.kafka]\nbootstrap_servers = "127.0.0.1:1"\ntopic = "t"\n')
    assert told(root) == {"sink.kafka": (None, 1)}
    assert last_batch(Lake.of(config_of(root))).batch_id == 0
