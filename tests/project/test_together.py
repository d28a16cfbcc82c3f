"""Pipelines beside each other: order, failures apart from each other, and the end that is asked for. Plain functions, no Spark."""

import threading
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.graph import Edge, Graph
from sessionlake.project import together
from sessionlake.project.together import How, Together


def graph(*edges: tuple[str, str], names: str = "") -> Graph:
    found = sorted({*names, *(name for edge in edges for name in edge)})
    return Graph(tuple(found), tuple(Edge(up, "t", down, "source.path") for up, down in edges))


def ran(of: Graph, work: Callable[[str], str], most: int = 2) -> Together[str]:
    found = Together(of, work, threading.Event())
    found.once(most)
    return found


def test_each_runs_after_those_that_it_reads() -> None:
    order: list[str] = []
    found = ran(graph(("a", "c"), ("b", "c"), ("c", "d")), lambda name: order.append(name) or name)
    assert sorted(order[:2]) == ["a", "b"]
    assert order[2:] == ["c", "d"]
    assert {name: (one.how, one.result) for name, one in found.ended.items()} == {
        name: (How.DONE, name) for name in "abcd"
    }


def test_what_reads_a_failed_one_is_skipped_and_the_others_run() -> None:
    def work(name: str) -> str:
        if name == "b":
            raise ValueError(name)
        return name

    found = ran(graph(("a", "c"), ("b", "d"), ("d", "e"), names="f"), work).ended
    assert {name: one.how for name, one in found.items()} == {
        **dict.fromkeys("acf", How.DONE),
        "b": How.FAILED,
        "d": How.SKIPPED,
        "e": How.SKIPPED,
    }
    assert (found["d"].because, found["e"].because) == (("b",), ("d",))
    assert str(found["b"].error) == "b"


@given(st.integers(1, 4), st.integers(1, 6))
def test_no_more_run_at_a_time_than_asked_for(most: int, count: int) -> None:
    running, peak, lock = 0, 0, threading.Lock()

    def work(name: str) -> str:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        with lock:
            running -= 1
        return name

    ran(graph(names="abcdef"[:count]), work, most)
    assert peak <= most


def test_independent_ones_run_beside_each_other() -> None:
    meeting = threading.Barrier(2, timeout=20)
    found = ran(graph(names="ab"), lambda name: f"{name}{meeting.wait() >= 0}").ended
    assert {one.how for one in found.values()} == {How.DONE}


def test_once_ends_early_if_asked() -> None:
    asked = threading.Event()

    def work(_: str) -> str:
        asked.set()
        raise KeyboardInterrupt

    found = Together(graph(("a", "b")), work, asked)
    assert {name: one.how for name, one in found.once(1).items()} == {"a": How.STOPPED}


def test_one_that_fails_is_started_again_ever_later_while_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "LONGEST_WAIT_S", 0.08)
    asked, tries, told = threading.Event(), Counter[str](), list[tuple[str, float | None]]()

    def work(name: str) -> str:
        tries[name] += 1
        if name == "a" and tries["a"] < 4:
            raise ValueError(name)
        if name == "a":
            asked.set()
        asked.wait(30)
        raise KeyboardInterrupt

    class Quick(threading.Event):
        """An event for which nobody waits long."""

        def wait(self, timeout: float | None = None) -> bool:
            return super().wait(
                min(timeout or 30, 0.01) if threading.current_thread().name == "pipeline-a" else timeout
            )

    asked = Quick()
    found = Together(graph(names="ab"), work, asked, lambda name, _, wait_s: told.append((name, wait_s)))
    ended = found.until_stopped()
    assert tries == {"a": 4, "b": 1}
    assert told == [("a", 1.0), ("a", 0.08), ("a", 0.08)]
    assert {one.how for one in ended.values()} == {How.STOPPED}


def test_without_restarts_a_failure_is_final() -> None:
    def work(name: str) -> str:
        raise ValueError(name)

    found = Together(graph(names="ab"), work, threading.Event())
    assert {one.how for one in found.until_stopped(restart=False).values()} == {How.FAILED}


@pytest.mark.parametrize("once", [True, False])
def test_what_ends_a_thread_and_is_no_exception_is_a_failure_of_that_pipeline_alone(once: bool) -> None:  # noqa: FBT001
    def work(name: str) -> str:
        if name == "a":
            raise SystemExit(3)
        return name

    found = Together(graph(names="ab"), work, threading.Event())
    ended = found.once(1) if once else found.until_stopped(restart=False)
    assert {name: one.how for name, one in ended.items()} == {"a": How.FAILED, "b": How.DONE}
    assert str(ended["a"].error) == "pipeline 'a' ended by SystemExit: 3"


def test_readers_of_pipelines_are_found_through_others() -> None:
    of = graph(("a", "c"), ("c", "d"), ("b", "e"), names="f")
    assert of.with_readers(["a"]) == {*"acd"}
    assert of.with_readers([]) == set()
