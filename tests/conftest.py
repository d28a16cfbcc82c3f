"""One Spark for all tests that need it."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sessionlake.engine.spark import SHORT_LIVED, build_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session(
        "tests", master="local[2]", shuffle_partitions=2, driver_memory="2g", extra_conf=SHORT_LIVED
    )
    yield session
    session.stop()
