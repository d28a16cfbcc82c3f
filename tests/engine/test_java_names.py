"""Names of Java's packages and classes cost a round trip to the JVM once, and what is not there can still come."""

from collections.abc import Callable
from typing import Any

import pytest
from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession


@pytest.fixture
def asked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], int]:
    """Count what a call asks the JVM."""
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    send, commands = client.send_command, []

    def counting(command: str, *args: Any, **kwargs: Any) -> str:
        commands.append(command)
        return str(send(command, *args, **kwargs))

    def count(call: Callable[[], object]) -> int:
        commands.clear()
        call()
        return len(commands)

    monkeypatch.setattr(client, "send_command", counting)
    return count


def test_a_class_is_asked_for_once(spark: SparkSession, asked: Callable[[Callable[[], object]], int]) -> None:
    jvm: Any = spark._jvm
    assert asked(lambda: jvm.java.util.concurrent.atomic.AtomicMarkableReference) > 0
    assert asked(lambda: jvm.java.util.concurrent.atomic.AtomicMarkableReference) == 0
    assert asked(lambda: jvm.java.util.concurrent.atomic.AtomicStampedReference) == 1


def test_a_class_that_is_not_there_is_asked_for_each_time(
    spark: SparkSession, asked: Callable[[Callable[[], object]], int]
) -> None:
    jvm: Any = spark._jvm
    assert isinstance(jvm.java.util.NotThere, JavaPackage)
    assert asked(lambda: jvm.java.util.NotThere) == 1
