"""The share of the cores that a pipeline gets: the settings, and that what a stream does has the pool of the thread that starts it."""

import xml.etree.ElementTree as ET
from pathlib import Path
from threading import Thread

from pyspark.sql import DataFrame, SparkSession

from sessionlake.engine.sockets import fair_pools, work_in_pool

POOL = "spark.scheduler.pool"


def test_each_pool_has_its_weight() -> None:
    settings = fair_pools({"visits": 3, "hours": 1})
    assert settings["spark.scheduler.mode"] == "FAIR"
    file = Path(settings["spark.scheduler.allocation.file"].removeprefix("file://"))
    pools = ET.parse(file).getroot()  # noqa: S314 (our own file)
    assert {pool.get("name"): pool.findtext("weight") for pool in pools} == {"visits": "3", "hours": "1"}


def test_a_query_works_in_the_pool_of_the_thread_that_starts_it(spark: SparkSession, tmp_path: Path) -> None:
    found: dict[str, str | None] = {}

    def run(name: str) -> None:
        session = spark.newSession()
        work_in_pool(session, name)

        def batch(_: DataFrame, __: int) -> None:
            found[name] = session.sparkContext.getLocalProperty(POOL)

        rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writer = rows.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(once=True).start()
        query.awaitTermination()

    threads = [Thread(target=run, args=(name,)) for name in ("visits", "hours")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"visits": "visits", "hours": "hours"}
    assert spark.sparkContext.getLocalProperty(POOL) is None
