import subprocess
import sys
from typing import Any

import pytest

from sessionlake.errors import UnsupportedOperationError
from sessionlake.stores import ReadOnlyKeyValueStore, ReadOnlySessionStore, ReadOnlyWindowStore, Windowed


class OwnKeyValues(ReadOnlyKeyValueStore[str, int]):
    """As a user may have written it before there were backward reads."""

    def get(self, key: str) -> int | None:
        return {"a": 1}.get(key)


class OwnWindows(ReadOnlyWindowStore[str, int]):
    def fetch_at(self, key: str, start: Any) -> int | None:
        return {("a", 0): 1}.get((key, start))


class OwnSessions(ReadOnlySessionStore[str, int]):
    pass


@pytest.mark.parametrize(
    ("store", "method", "arguments"),
    [
        (OwnKeyValues(), "reverse_range", ["a", "b"]),
        (OwnKeyValues(), "reverse_all", []),
        (OwnWindows(), "backward_fetch", ["a", 0, 1]),
        (OwnWindows(), "backward_fetch_range", ["a", "b", 0, 1]),
        (OwnWindows(), "backward_fetch_all", [0, 1]),
        (OwnWindows(), "backward_all", []),
        (OwnSessions(), "find_sessions", ["a", 0, 1]),
        (OwnSessions(), "find_sessions_range", ["a", "b", 0, 1]),
        (OwnSessions(), "find_sessions_by_end", [0, 1]),
        (OwnSessions(), "fetch_session", ["a", 0, 1]),
        (OwnSessions(), "backward_fetch", ["a"]),
        (OwnSessions(), "backward_fetch_range", ["a", "b"]),
        (OwnSessions(), "backward_find_sessions", ["a", 0, 1]),
        (OwnSessions(), "backward_find_sessions_range", ["a", "b", 0, 1]),
    ],
)
def test_own_store_needs_forward_reads_only(store: Any, method: str, arguments: list[Any]) -> None:
    with pytest.raises(UnsupportedOperationError, match=rf"^store: this one has no {method}\(\); choose a store"):
        getattr(store, method)(*arguments)


def test_windowed_is_a_value() -> None:
    one = Windowed("a", 1, 2)
    assert one == Windowed("a", 1, 2)
    assert {one: 1}[Windowed("a", 1, 2)] == 1
    assert repr(one) == "Windowed(key='a', start=1, end=2)"
    with pytest.raises(AttributeError):
        one.start = 3  # type: ignore[misc]


def test_importing_the_stores_brings_neither_spark_nor_what_workers_must_not_have() -> None:
    code = (
        "import sys, sessionlake.stores\nprint({'pyspark', 'delta', 'pydantic', 'duckdb', 'click'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
