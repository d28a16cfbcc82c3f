"""How the queries of streams end."""

import gc
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sessionlake.stream.queries import is_second_driver
from sessionlake.stream.run import run
from tests.operators.windows.window_support import window_config
from tests.support import write_rows


def test_an_exit_in_a_batch_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """Java waits for the answer of each batch: without one the query never ends."""
    config = window_config(tmp_path)
    write_rows(tmp_path, "a.json", [{"key": "a", "time_us": 105, "v": 1}])
    with pytest.raises(StreamingQueryException, match=r"sys\.exit\('enough'\) was called in a batch"):
        run(spark, config, once=True, on_commit=lambda _: sys.exit("enough"))


@pytest.mark.slow
def test_nothing_stays_of_a_query_that_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    """Java held the function of each batch, the function Python's object of the query, and that the query: for good."""
    config = window_config(tmp_path)
    functions: dict[str, object] = gateway_of(spark).pool.dict
    before = set(functions)
    for number in range(4):
        write_rows(tmp_path, f"{number}.json", [{"key": "a", "time_us": 105 + number, "v": 1}])
        run(spark, config, once=True)
    until = time.monotonic() + 60
    # Java has the last query's in use until another one begins.
    while len(left := set(functions) - before) > 1:
        assert time.monotonic() < until, left
        gc.collect()
        jvm_of(spark).java.lang.System.gc()
        time.sleep(0.1)


def gateway_of(spark: SparkSession) -> Any:
    return spark.sparkContext._gateway.gateway_property


def jvm_of(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def test_a_checkpoint_that_another_driver_fills_meanwhile_means_a_second_driver() -> None:
    """Spark asks whether it is empty as it begins, and again once the first batch is planned."""
    told = "[STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY] The checkpoint location file:/w/_checkpoints/p/offsets should be empty on batch 0"
    assert is_second_driver(told)
    assert not is_second_driver("[PATH_NOT_FOUND] Path does not exist: file:/w/_checkpoints/p/offsets")
