"""Jobs of Spark that are cancelled because they take too long."""

import time
from collections.abc import Iterable, Iterator

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from sessionlake.engine.watching import within
from sessionlake.errors import OverdueError


def stuck(parts: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    while True:
        time.sleep(60)
    yield from parts


def test_a_job_that_hangs_is_cancelled_and_the_next_one_runs(spark: SparkSession) -> None:
    began = time.monotonic()
    with pytest.raises(OverdueError, match="too long"), within(spark, 0.1, OverdueError("too long")):
        spark.range(4).mapInPandas(stuck, "id long").collect()
    assert time.monotonic() - began < 60, "it did not wait for the sleep"
    with within(spark, 600, OverdueError("too long")):
        assert spark.range(4).count() == 4


def test_an_error_of_its_own_stays(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), within(spark, 600, OverdueError("too long")):
        1 // 0  # noqa: B018
