"""A driver on a cluster, run as a script: it takes its pipeline through faults and prints each commit's metadata."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from sessionlake.engine.spark import LITTLE_JAVA, build_session
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit
from tests.engine.cluster_support import cluster_config


def main() -> None:
    """Run `{"properties", "root", "once", "kill_executor_after", "kill_worker_after", "worker"}`, given as JSON."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    conf = {
        **LITTLE_JAVA,
        **dict(line.split("=", 1) for line in Path(told["properties"]).read_text().splitlines()),
        "spark.driver.host": "127.0.0.1",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "700m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executorEnv.SESSIONLAKE_KILL_AT": "worker_computed",
        "spark.executorEnv.SESSIONLAKE_KILL_ONCE": told["once"],
        "spark.executorEnv.SESSIONLAKE_KILL_EXECUTOR": "1",
        "spark.executorEnv.SLOW_MERGE_SECONDS": "5",
    }
    spark = build_session("cluster", shuffle_partitions=2, driver_memory="800m", extra_conf=conf)

    def committed(commit: BatchCommit) -> None:
        batch = commit.batch_id
        sys.stdout.write(json.dumps(commit.metadata()) + "\n")
        sys.stdout.flush()
        if batch == told["kill_executor_after"]:
            Path(told["once"]).touch()
        if batch == told["kill_worker_after"]:
            os.kill(told["worker"], signal.SIGKILL)

    run(spark, cluster_config(Path(told["root"])), once=True, on_commit=committed)
    spark.stop()


if __name__ == "__main__":
    main()
