"""One Spark for all tests that need it, and one profile of Hypothesis."""

import json
import os
import re
import signal
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
from tests.operator_forms import FORMS
from tests.parts import dealt, part_of

# No test is judged by the time it takes: others run beside it. `make test` draws few examples, and the same ones each time, so that
# a red run is the doing of the change that it judges (Hypothesis does so by itself on a CI's machine); `make test-all` draws new ones.
settings.register_profile("search", deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
settings.register_profile("ci", settings.get_profile("search"), derandomize=True, max_examples=25)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# How much progress is shown goes by how slow the machine is: tests of it ask for it.
os.environ.setdefault("SESSIONLAKE_QUIET", "1")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what runs in the background ignore ctrl-C, and so all that the tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

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
# Modules whose tests share something only if they are of one form of an operator. As a whole, each would keep one worker for an hour.
BY_FORM = {"tests/engine/test_crash.py", "tests/engine/test_faults.py"}
_FORM = re.compile(rf"[\[-]({'|'.join(map(re.escape, FORMS))})[\]-]")
# About the seconds of the clock that a slow test takes.
SLOW_SECONDS = 20


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", type=part_of, default=(1, 1), metavar="N/OF", help="run the N-th of so many parts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the modules that take longest first: one begun at the end would keep the other worker waiting. Leave out those of other parts.

    Slow tests may take longer than others before they count as stuck.
    """
    seconds: Counter[str] = Counter()
    for module, scope in {(item.nodeid.partition("::")[0], _scope(item.nodeid)) for item in items}:
        seconds[scope] += SECONDS.get(module, [0])[0]
    for item in items:
        if not item.get_closest_marker("slow"):
            continue
        seconds[_scope(item.nodeid)] += SLOW_SECONDS
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_SECONDS))
    number, of = config.getoption("part")
    parts = dealt(seconds, of)
    config.hook.pytest_deselected(items=[item for item in items if parts[_scope(item.nodeid)] != number])
    items[:] = [item for item in items if parts[_scope(item.nodeid)] == number]
    items.sort(key=lambda item: -seconds[_scope(item.nodeid)])


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A part in which no test has the asked marks is no failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("part") != (1, 1):
        session.exitstatus = pytest.ExitCode.OK


def _scope(nodeid: str) -> str:
    """Return a name of the tests that a test is run with: its module, a group of modules, or a part of its module."""
    module = nodeid.partition("::")[0]
    if module in BY_FORM and (form := _FORM.search(nodeid)):
        return f"{module}[{form[1]}]"
    return _GROUPS.get(module, module)


class WholeModules(LoadScopeScheduling):
    """Give each module to one worker of xdist, so that its tests make a thing that they share once; likewise what modules share."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WholeModules:
    config.option.loadscopereorder = False
    return WholeModules(config, log)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Delta keeps what it knows of a table for an hour, 2 MB of each. After a thousand tests' tables two thirds of the time were Java's
    # garbage collection.
    few = {"spark.databricks.delta.delta.log.cacheSize": "50"}
    session = build_session(
        "tests", master="local[2]", shuffle_partitions=2, driver_memory="2g", little_java=True, extra_conf=few
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("kafka")) as started:
        yield started
