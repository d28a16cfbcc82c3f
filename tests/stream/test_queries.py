"""How the queries of streams end."""

import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from sessionlake.operators.run import run
from tests.operators.windows.window_support import window_config
from tests.support import write_rows


def test_an_exit_in_a_batch_fails_the_query(spark: SparkSession, tmp_path: Path) -> None:
    """Java waits for the answer of each batch: without one the query never ends."""
    config = window_config(tmp_path)
    write_rows(tmp_path, "a.json", [{"key": "a", "time_us": 105, "v": 1}])
    with pytest.raises(StreamingQueryException, match=r"sys\.exit\('enough'\) was called in a batch"):
        run(spark, config, once=True, on_commit=lambda _: sys.exit("enough"))
