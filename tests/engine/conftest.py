"""A pipeline of sessions that several modules crash, damage and take stores from, each its own copy: made once by each worker of xdist."""

import pytest
from pyspark.sql import SparkSession

from tests.engine.crash_support import Undisturbed, half_done, run_to_the_end
from tests.operator_lake import OperatorLake
from tests.operators_table import SessionLake


@pytest.fixture(scope="session")
def session_half(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> OperatorLake:
    return half_done(spark, tmp_path_factory.mktemp("half"), SessionLake)


@pytest.fixture(scope="session")
def session_undisturbed(
    spark: SparkSession, session_half: OperatorLake, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed[OperatorLake]:
    return run_to_the_end(spark, session_half, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def half(session_half: OperatorLake) -> OperatorLake:
    return session_half


@pytest.fixture
def expected(session_undisturbed: Undisturbed[OperatorLake]) -> OperatorLake:
    return session_undisturbed[0]
