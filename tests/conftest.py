"""One Spark for all tests that need it, and one profile of Hypothesis."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
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
# Seconds of each module, of the CPU and of the clock, as `make test-seconds` measured them last.
SECONDS: dict[str, list[float]] = json.loads(Path(__file__).with_name("seconds.json").read_text())
# Modules that use one fixture of all tests' that takes long to make.
SHARING = {
    "a broker": (
        *(
            "tests/sources/test_kafka.py",
            "tests/sources/test_kafka_join.py",
            "tests/sources/test_debezium.py",
            "tests/sources/test_topics.py",
            "tests/sources/test_avro_topics.py",
        ),
        *(
            "tests/stream/test_kafka_crash.py",
            "tests/jobs/test_publish.py",
            "tests/jobs/test_publish_errors.py",
            "tests/jobs/test_publish_transactions.py",
            "tests/operators/counts/test_kafka.py",
        ),
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
    seconds: Counter[str] = Counter()
    for module in {item.nodeid.partition("::")[0] for item in items}:
        seconds[_scope(module)] += SECONDS.get(module, [0])[0]
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_SECONDS))
    items.sort(key=lambda item: -seconds[_scope(item.nodeid)])


def _scope(nodeid: str) -> str:
    """Return the module or the group of modules that a test is run with."""
    module = nodeid.partition("::")[0]
    return _GROUPS.get(module, module)


class WholeModules(LoadScopeScheduling):
    """Give each module to one worker of xdist, so that what its tests share is made once; likewise what modules share."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


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
