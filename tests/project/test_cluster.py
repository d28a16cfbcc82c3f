"""A project on a real standalone cluster: all pipelines in one driver, the shards of all together on two workers."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from infra.spark.cluster import Cluster
from sessionlake.config.project import load_project
from sessionlake.serve.queries import query_tables
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.lake import Lake
from tests.project.project_support import PIPELINES, PROJECT, write_project

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]
COMMAND = Path(__file__).parents[2] / "pipelines" / "command.py"
FILES = 4
SMALL = ("spark.driver.host=127.0.0.1", "spark.cores.max=2", "spark.executor.cores=1", "spark.executor.memory=700m")


def make(root: Path, store: str) -> Path:
    """Write a project, and its files of events."""
    return write_project(root, FILES, PROJECT.replace("shards = 1", f'shards = 1\nstore = "{store}"'))


def rows(root: Path) -> dict[str, list[object]]:
    """Return the latest rows of each pipeline, without what differs from run to run."""
    found = {}
    for name, config in load_project(root).configs.items():
        live = Lake.of(config).changelog.live
        columns, values = query_tables(config, f"select * from {live} order by all", 1000)
        kept = [
            at for at, column in enumerate(columns) if column not in ("revision", "emitted_at", "written_at", "state")
        ]
        found[name] = [tuple(row[at] for at in kept) for row in values]
    return found


def test_all_pipelines_run_on_all_workers_and_equal_those_of_one_machine(tmp_path: Path) -> None:
    there, here = make(tmp_path / "there", "${SESSIONLAKE_STORE}"), tmp_path / "here"
    shutil.copytree(there, here)
    project = here / "project.toml"
    project.write_text(project.read_text().replace("${SESSIONLAKE_STORE}", "store"))
    with Cluster(tmp_path / "spark") as cluster:
        jars = subprocess.run([sys.executable, "-m", "sessionlake", "jars"], capture_output=True, text=True, check=True)
        conf = [word for setting in SMALL for word in ("--conf", setting)]
        submit = [str(Path(sys.executable).with_name("spark-submit")), "--properties-file", str(cluster.properties)]
        words = [
            "--load-spark-defaults",
            *conf,
            "--jars",
            f"{jars.stdout.strip()}/*.jar",
            str(COMMAND),
            "run",
            str(there),
        ]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run([*submit, *words, "--once"], capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stderr
    sessionlake = [sys.executable, "-m", "sessionlake", "--quiet", "run", str(here), "--once"]
    subprocess.run(sessionlake, capture_output=True, check=True)
    assert rows(there) == rows(here)
    placed = {name: last_batch(Lake.of(config)).places for name, config in load_project(there).configs.items()}
    workers = Counter(places.executors[at] for places in placed.values() for at in places.at if at is not None)
    assert [*workers.values()] == [len(PIPELINES) // 2] * 2, {name: places.executors for name, places in placed.items()}
