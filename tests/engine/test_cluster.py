"""Executors of their own: the anchor keeps shards in place, and results are those of local mode."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake import schemas
from sessionlake.jobs.sessionizer.run import run
from sessionlake.tables import Tables
from tests.jobs.support import make_config, write_rows

DRIVER = """
import json, sys
from pathlib import Path
from sessionlake import schemas
from sessionlake.engine import placement
from sessionlake.engine.spark import build_session
from sessionlake.jobs.sessionizer.run import run
from sessionlake.tables import Tables
from tests.jobs.support import make_config

spark = build_session("cluster", master="local-cluster[2,1,1024]", shuffle_partitions=4)
config = make_config(Path(sys.argv[1]), pipeline={"shards": 4})
summary = run(spark, config, once=True)
rows = Tables(spark, config.pipeline.warehouse).read(schemas.CHANGELOG)
rows = rows.selectExpr("op", "session_key", "string(session_start)", "string(session_end)", "event_count", "revision")
print(json.dumps([summary.counts, sorted(map(list, rows.collect())), len(placement._anchors)]))
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_local_cluster_equals_local_mode(spark: SparkSession, tmp_path: Path) -> None:
    roots = [tmp_path / "cluster", tmp_path / "local"]
    for root in roots:
        root.mkdir()
        make_config(root)
        for batch in range(4):
            rows = [{"key": f"k{i % 9}", "time_us": 1000 + 15 * batch + (i * 7) % 23, "v": i} for i in range(40)]
            write_rows(root, f"{batch}.json", rows)
    project = Path(__file__).parents[2]
    command = [sys.executable, "-c", DRIVER, str(roots[0])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    counts, changes, anchors = json.loads(done.stdout.strip().splitlines()[-1])
    config = make_config(roots[1], pipeline={"shards": 4})
    summary = run(spark, config, once=True)
    rows = Tables(spark, config.pipeline.warehouse).read(schemas.CHANGELOG)
    rows = rows.selectExpr(
        "op", "session_key", "string(session_start)", "string(session_end)", "event_count", "revision"
    )
    assert counts == summary.counts
    assert changes == sorted(map(list, rows.collect()))
    assert anchors == 1
