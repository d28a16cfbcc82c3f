"""One Spark for all tests that need it, and one profile of Hypothesis."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from xdist.scheduler import LoadScopeScheduling

from infra.kafka.broker import Broker
from sessionlake.engine.spark import build_session

# No test is judged by the time it takes: others run beside it. `make test` draws few examples, and the same ones each time, so that
# a red run is the doing of the change that it judges (Hypothesis does so by itself on a CI's machine); `make test-all` draws new ones.
settings.register_profile("search", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("ci", settings.get_profile("search"), derandomize=True, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# How much progress is shown goes by how slow the machine is: tests of it ask for it.
os.environ.setdefault("SESSIONLAKE_QUIET", "1")

SLOW_TIMEOUT_SECONDS = 900
# By the time they take, the longest first.
LONGEST = (
    "test_sessionizer.py",
    "test_crash.py",
    "test_forget.py",
    "test_compact.py",
    "test_kafka.py",
    "test_kafka_crash.py",
    "test_publish.py",
    "test_quality.py",
    "test_compact_fold.py",
    "test_compact_layout.py",
    "test_expire.py",
    "test_restore.py",
    "test_reprocess_late.py",
    "test_lake.py",
    "test_backfill.py",
    "test_archive.py",
    "test_reprocess_late_ledger.py",
    "test_store_machine.py",
)
# Modules that use one fixture of all tests' that takes long to make.
SHARING = {
    "a broker": (
        *("tests/sources/test_kafka.py", "tests/sources/test_kafka_join.py"),
        *("tests/stream/test_kafka_crash.py", "tests/jobs/test_publish.py", "tests/operators/counts/test_kafka.py"),
    ),
    "a JVM": (
        "tests/operators/sessions/test_invariants_kafka.py",
        "tests/operators/windows/test_kafka_streams.py",
    ),
    "nine batches": ("tests/jobs/compact/test_compact_fold.py", "tests/jobs/compact/test_compact_layout.py"),
}
_GROUPS = {module: name for name, modules in SHARING.items() for module in modules}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the modules that take longest first: one begun at the end would keep the other worker waiting.

    Slow tests may take longer than others before they count as stuck.
    """
    places = {name: place for place, name in enumerate(LONGEST)}
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_SECONDS))
    items.sort(key=lambda item: places.get(item.path.name, len(LONGEST)))


class WholeModules(LoadScopeScheduling):
    """Give each module to one worker of xdist, so that what its tests share is made once; likewise what modules share."""

    def _split_scope(self, nodeid: str) -> str:
        module = nodeid.partition("::")[0]
        return _GROUPS.get(module, module)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeModules:
    config.option.loadscopereorder = False
    return WholeModules(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session("tests", master="local[2]", shuffle_partitions=2, driver_memory="2g", little_java=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started
