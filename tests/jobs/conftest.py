"""A changelog to fold, which several modules' tests begin with."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.jobs.compact.compact_support import nine_batches


@pytest.fixture(scope="session")
def nine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("nine")
    nine_batches(spark, root)
    return root
