"""Signals that are put off, and those that a process is told to ignore."""

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from sessionlake.stopping import handlers_kept, heard, pause, put_off


@pytest.fixture(autouse=True)
def python_s_own() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_noted_and_the_second_interrupts(number: int) -> None:
    with put_off() as asked:
        assert not asked.is_set()
        signal.raise_signal(number)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_second_signal_goes_to_the_handler_that_was_there() -> None:
    heard_by: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: heard_by.append(number))
    with put_off():
        signal.raise_signal(signal.SIGINT)
        assert heard_by == []
        signal.raise_signal(signal.SIGTERM)
    assert heard_by == [signal.SIGTERM]


def test_what_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert heard() == [signal.SIGTERM]
    with put_off() as asked:
        signal.raise_signal(signal.SIGINT)
        assert not asked.is_set()


def test_a_pause_of_any_thread_ends_if_the_process_is_asked_to_end() -> None:
    began, ended = threading.Event(), list[str]()

    def work() -> None:
        pause(0)
        began.set()
        try:
            pause(600)
        except KeyboardInterrupt:
            ended.append("interrupted")

    with put_off():
        thread = threading.Thread(target=work)
        thread.start()
        assert began.wait(60)
        signal.raise_signal(signal.SIGINT)
        thread.join(60)
    assert ended == ["interrupted"]


def test_another_thread_has_no_say_in_signals() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def work() -> None:
        with put_off() as asked, handlers_kept():
            seen.extend((asked.is_set(), signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False, before]


@pytest.mark.parametrize(("before", "stays"), [(lambda *_: None, False), (signal.default_int_handler, True)])
def test_a_handler_that_a_library_installs_is_taken_back_if_there_is_one_of_the_program(
    before: Callable[..., None], *, stays: bool
) -> None:
    def of_library(*_: object) -> None: ...

    python = signal.signal(signal.SIGINT, before)
    try:
        with handlers_kept():
            signal.signal(signal.SIGINT, of_library)
        assert signal.getsignal(signal.SIGINT) is (of_library if stays else before)
    finally:
        signal.signal(signal.SIGINT, python)


def test_other_threads_hear_of_it_while_the_main_one_puts_it_off() -> None:
    heard: list[bool] = []

    def work() -> None:
        with put_off() as asked:
            begun.set()
            heard.append(asked.wait(20))

    with put_off() as asked:
        begun, thread = threading.Event(), threading.Thread(target=work)
        thread.start()
        begun.wait(20)
        signal.raise_signal(signal.SIGINT)
        thread.join()
        assert asked.is_set()
    assert heard == [True]
