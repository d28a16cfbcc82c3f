"""One Spark for all tests that need it, and one profile of Hypothesis."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from sessionlake.engine.spark import SHORT_LIVED, build_session

# No test is judged by the time it takes: others run beside it.
settings.register_profile("ci", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.load_profile("ci")

LONGEST = ("test_forget.py", "test_compact.py", "test_crash.py", "test_publish.py", "test_backfill.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the modules with the longest tests first: one begun at the end would keep the other worker waiting."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session(
        "tests", master="local[2]", shuffle_partitions=2, driver_memory="2g", extra_conf=SHORT_LIVED
    )
    yield session
    session.stop()
