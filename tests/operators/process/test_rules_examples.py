"""The examples of docs/rules.md, rules 340 to 355; times in the rules' minutes are seconds after 12:00 here."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.errors import ConfigError
from sessionlake.operators.process.user_class import load_class
from tests.operators.process import processors
from tests.operators.process.memory_segments import MemorySegments
from tests.operators.process.process_support import CLASSES, ProcessPipeline

COLUMNS = {"kind": pa.string(), "value": pa.int64()}
OUTPUT = {"text": "string", "number": "long", "other": "double", "flag": "boolean"}
MINUTE, DAY = 60_000_000, 86_400_000_000
Made = Callable[..., ProcessPipeline]


@pytest.fixture
def made() -> Iterator[Made]:
    opened: list[ProcessPipeline] = []

    def make(of: str, *, retention: int = 7 * DAY, grace: int = 0, **more: Any) -> ProcessPipeline:
        lengths = {"retention_us": retention, "grace_us": grace}
        opened.append(ProcessPipeline(Path(), of, COLUMNS, OUTPUT, **lengths, opened=MemorySegments, **more))
        return opened[-1]

    yield make
    for one in opened:
        with closing(one):
            pass


def row(key: str, time_us: int, kind: str = "a", value: int = 9) -> dict[str, Any]:
    return {"key": key, "time_us": time_us, "kind": kind, "value": value}


def texts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(r["output_key"], r["text"], r["number"]) for r in rows]


def test_rule_340_rows_are_processed_as_they_arrive(made: Made) -> None:
    pipeline = made("Order")
    pipeline.batch([row("a", 0), row("a", 5 * MINUTE), row("a", 3 * MINUTE)], tasks=3)
    assert texts(pipeline.sent) == [("a", "", 0), ("a", "", 5 * MINUTE), ("a", "", 3 * MINUTE)]


@pytest.mark.parametrize(("last", "fired"), [(10 * MINUTE, False), (11 * MINUTE, True)])
def test_rule_342_a_timer_fires_before_the_first_later_row_of_its_key(made: Made, last: int, *, fired: bool) -> None:
    pipeline = made("Alarm")
    pipeline.batch([row("a", 0, value=10), row("a", last, "b")])
    assert texts(pipeline.sent) == ([("a", "timer", 10 * MINUTE)] if fired else []) + [("a", "row", 0)]


@pytest.mark.parametrize(
    ("grace", "other", "fired"),
    [(0, 10 * MINUTE, False), (0, 11 * MINUTE, True), (MINUTE, 11 * MINUTE, False), (MINUTE, 11 * MINUTE + 1, True)],
)
def test_rule_342_a_timer_fires_once_the_watermark_less_grace_is_past_it(
    made: Made, grace: int, other: int, *, fired: bool
) -> None:
    pipeline = made("Alarm", grace=grace, shards=2)
    pipeline.batch([row("a", 0, value=10)])
    assert texts(pipeline.batch([row("b", other, "c")])) == ([("a", "timer", 10 * MINUTE)] if fired else [])


def test_rule_343_day_fires_before_gap_and_may_cancel_it(made: Made) -> None:
    pipeline = made("DayAndGap")
    pipeline.batch([row("a", 0), row("b", 11 * MINUTE)])
    assert [text for _, text, _ in texts(pipeline.sent)] == ["day"]


def test_rule_344_a_timer_that_sets_itself_fires_as_often_as_time_has_passed(made: Made) -> None:
    pipeline = made("EachMinute")
    pipeline.batch([row("a", 0)])
    assert len(pipeline.batch([row("b", 60 * MINUTE + 1, "c")])) == 60


def test_rule_344_a_timer_that_goes_on_for_ever_is_a_dead_letter(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.operators.process.key_run.MOST_TIMERS", 5)
    pipeline = made("EachMinute")
    pipeline.batch([row("a", 0), row("b", 60 * MINUTE, "c")])
    (letter,) = pipeline.failed_timers
    assert "more than 5 timers" in letter["reason"]
    assert len(pipeline.sent) == 5


def test_rule_345_a_clock_timer_fires_by_the_clock_of_a_batch_without_rows(made: Made) -> None:
    pipeline = made("Clocked")
    pipeline.batch([row("a", 0, "b")], clock_us=100)
    assert pipeline.state["next_clock_timer_us"] == 110
    assert pipeline.batch([], clock_us=109) == []
    assert texts(pipeline.batch([], clock_us=110)) == [("a", "b", 110)]
    assert pipeline.state["next_clock_timer_us"] is None
    assert pipeline.batch([], clock_us=200) == []


@pytest.mark.parametrize(("later", "seen"), [(7 * DAY, 2), (7 * DAY + 1, 1)])
def test_rule_347_state_that_nothing_touched_for_longer_than_retention_is_gone(
    made: Made, later: int, seen: int
) -> None:
    together, apart = made("Counting"), made("Counting")
    together.batch([row("a", 0), row("a", later)])
    apart.batch([row("a", 0)])
    apart.batch([row("a", later)])
    assert texts(together.sent)[-1] == texts(apart.sent)[-1] == ("a", "", seen)


def test_rule_347_state_goes_by_the_rows_of_other_keys(made: Made) -> None:
    pipeline = made("Counting")
    pipeline.batch([row("a", 0)])
    pipeline.batch([row("b", 7 * DAY)])
    assert set(pipeline.stored()) == {"a", "b"}
    pipeline.batch([row("b", 7 * DAY + 1)])
    assert set(pipeline.stored()) == set(pipeline.states) == {"b"}


def test_rule_349_rows_are_named_by_position_and_ordinal(made: Made) -> None:
    pipeline = made("Two")
    pipeline.batch([row("a", 0), row("b", 1), row("a", 10)])
    found = [(r["output_key"], r["position"], r["ordinal"]) for r in pipeline.sent]
    assert found == [
        ("a", 1, 1),
        ("a", 1, 2),
        ("a", 1, 3),
        ("a", 3, 1),
        ("a", 3, 2),
        ("b", 2, 1),
        ("b", 2, 2),
        ("b", 2, 3),
    ]


def test_rule_350_a_row_that_fails_leaves_no_trace(made: Made) -> None:
    pipeline = made("Raising", max_state_bytes=2000)
    pipeline.batch([row("a", 0), *(row("a", 0, value=value) for value in range(4)), row("a", 0)])
    assert texts(pipeline.sent) == [("a", "counted", 1), ("a", "counted", 2)]
    assert [letter["reason"].partition(" at ")[0].rpartition("raised ")[2] for letter in pipeline.dead] == [
        "ValueError: a zero",
        "TypeError: column 'text' is string, and 1 is not",
        "TypeError: column 'unknown' is not in [process.output]",
        "ValueError: the key's state is larger than max_state_bytes, 2000",
    ]
    assert all(" at processors.py" in letter["reason"] for letter in pipeline.dead)
    assert (pipeline.stats["accepted"], pipeline.stats["dead"], pipeline.stats["input"]) == (2, 4, 6)


@pytest.mark.parametrize("of", ["Ending", "EndingTables"])
def test_rule_350_an_error_that_is_no_exception_fails_its_row_too(made: Made, of: str) -> None:
    pipeline = made(of)
    values = range(6 if of == "Ending" else 5)
    pipeline.batch([row("a", 0), *(row("a", 0, value=value) for value in values), row("a", 0)])
    assert [r["number"] for r in pipeline.sent] == ([1, 2] if of == "Ending" else [None, None])
    raised = [letter["reason"].partition("raised ")[2].partition(" at ")[0] for letter in pipeline.dead]
    assert (
        raised
        == [
            *("SystemExit: SystemExit", "GeneratorExit: GeneratorExit", "CancelledError: CancelledError", "Own: Own"),
            *("UnsaidError: UnsaidError", "TypeError: column 'text' is string, and 1 is not"),
        ][: len(values)]
    )
    assert (pipeline.stats["accepted"], pipeline.stats["dead"]) == (2, len(values))
    pipeline.batch([row("b", 10)])
    assert len(pipeline.failed_timers) == (of == "Ending")


def test_ctrl_c_is_no_error_of_a_row(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = made("Ending")
    monkeypatch.setattr(processors, "ENDINGS", (KeyboardInterrupt,))
    with pytest.raises(KeyboardInterrupt):
        pipeline.batch([row("a", 0, value=0)])


def test_a_class_that_ends_its_process_when_it_is_opened_is_one_line(made: Made) -> None:
    pipeline = made("EndingAtOnce")
    told = r"^process.class: .*:EndingAtOnce.open raised SystemExit: 4 at processors.py:\d+; correct the class$"
    with pytest.raises(ConfigError, match=told):
        pipeline.operator.spec.check_class()
    with pytest.raises(ConfigError, match=told):
        pipeline.batch([row("a", 0)])


def test_rule_351_a_timer_that_fails_is_a_dead_letter_of_its_own(made: Made) -> None:
    pipeline = made("Raising")
    pipeline.batch([row("a", 0, "b"), row("a", 10, "c")])
    (letter,) = pipeline.failed_timers
    assert (letter["kind"], letter["key"], letter["event_time"]) == ("timer", "a", 3)
    assert texts(pipeline.sent) == [("a", "counted", 1), ("a", "counted", 2)]


def test_rule_355_a_reset_deletes_state_and_timers_before_the_rows(made: Made) -> None:
    pipeline = made("Alarm")
    pipeline.batch([row("a", 0, value=10)])
    assert pipeline.batch([row("b", 20 * MINUTE, "c")], corrections=[{"kind": "reset", "key": "a"}]) == []
    assert pipeline.states == {}
    assert pipeline.index() == []


def test_rule_355_a_tombstone_deletes_one_row(made: Made) -> None:
    pipeline = made("Two")
    pipeline.batch([row("a", 0)])
    named = {"kind": "tombstone", "key": "a", "start_time": 0, "ordinal": 1, "other_ordinal": 2}
    (deleted,) = pipeline.batch([], corrections=[named, named])
    names = ("op", "output_key", "output_time", "position", "ordinal", "text")
    assert tuple(deleted[name] for name in names) == ("delete", "a", 0, 1, 2, None)


def test_rule_359_tables_give_what_rows_give(made: Made) -> None:
    tables, rows = made("CountingTables", shards=2), made("Counting", shards=2)
    batches = [
        [row(key, 10 * batch + i % 3, value=(i + batch) % 5) for i, key in enumerate("abcaabdabbcd")]
        for batch in range(4)
    ]
    for batch in batches:
        tables.batch(batch, tasks=2)
        rows.batch([one for one in batch if one["value"]], tasks=2)
        tables.lose_stores()
    assert len(tables.dead) == sum(one["value"] == 0 for batch in batches for one in batch)
    assert all(" at processors.py:" in letter["reason"] for letter in tables.dead)
    counted = [(r["output_key"], r["output_time"], r["number"]) for r in tables.sent if r["text"] == ""]
    assert sorted(counted) == sorted((r["output_key"], r["output_time"], r["number"]) for r in rows.sent)
    late = [(r["output_key"], r["output_time"], r["ordinal"]) for r in tables.sent if r["text"] == "late"]
    assert len(late) == len({(key, time) for key, time, _ in late}) > 0
    assert len({(r["output_key"], r["position"], r["ordinal"]) for r in tables.sent}) == len(tables.sent)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no.such.module:Funnel", "ModuleNotFoundError"),
        (f"{CLASSES}:Missing", "can't be loaded (AttributeError"),
        (f"{CLASSES}:NotOne", "is no subclass of Processor"),
    ],
)
def test_a_class_that_is_none_is_refused_in_one_line(path: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^process") as raised:
        load_class(path, None)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
