"""One Spark for all tests that need it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sessionlake.engine.spark import build_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # A short-lived JVM spends most of its time on compiling: the first tier only halves the tests' time.
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    session = build_session("tests", master="local[2]", shuffle_partitions=2, driver_memory="2g", extra_conf=java)
    yield session
    session.stop()
