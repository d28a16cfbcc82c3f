"""A pipeline that has run."""

import pytest
from pyspark.sql import SparkSession

from tests.cli.support import Project


@pytest.fixture(scope="session")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Project:
    del spark
    project = Project(tmp_path_factory.mktemp("ran") / "project")
    result = project.call("run", "--once")
    assert (result.exit_code, result.stderr) == (0, "")
    return project
