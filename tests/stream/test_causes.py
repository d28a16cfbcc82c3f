"""Lines about dead letters: the commonest cause, never a value of a row, and no advice that helps late events alone."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.local.stream import LocalBatch
from sessionlake.sources.decoding.decoded import wrong_type
from sessionlake.stream.causes import by_cause, causes_of, notes_of
from sessionlake.stream.run import run
from sessionlake.testing import Harness
from tests.support import make_config, write_rows

SESSIONS: dict[str, Any] = {
    "source": {"kind": "files", "path": "clicks", "format": "json"},
    "event": {"key": "user", "time": "at", "time_unit": "us", "id": "id"},
    "session": {"gap": "30 seconds"},
    "aggregates": {"total": "sum(v)"},
}
SIDE: dict[str, Any] = {"source": SESSIONS["source"], "event": {"time": "at", "time_unit": "us", "id": "id"}}
PAIRS: dict[str, Any] = {
    "join": {
        "on": ["user"],
        "left": {"name": "l", "size": "1 minute", **SIDE},
        "right": {"name": "r", "size": "1 minute", **SIDE},
        "retention": "1 day",
    }
}


class Seen(Harness):
    """A harness that shows all numbers of its last batch."""

    stats: dict[str, int]

    def run(self, *arguments: Any, **options: Any) -> LocalBatch:
        batch = super().run(*arguments, **options)
        self.stats = batch.stats
        return batch


def test_a_cause_has_no_value_of_a_row() -> None:
    reasons = {
        "unparsable time: 'ann: secret'": "unparsable time",
        "wrong type: v = 'a = b: is not a long' is not a double": "wrong type: v is not a double",
        "wrong type: price = '1' is not a decimal(10, 2)": "wrong type: price is not a decimal(10, 2)",
        "wrong type: v = 'two\nlines' is not a long": "wrong type: v is not a long",
        "wrong type: v = 'x' is not double": "wrong type: v is not a double",
        "class rate:Rate raised KeyError: 'ann' at rate.py:13": "class rate:Rate raised KeyError",
        "no row in users": "no row in users",
        "key too long: 2000 bytes, event.max_key_bytes is 1024": "key too long",
    }
    assert causes_of(pa.array(list(reasons))).to_pylist() == list(reasons.values())


@given(st.text(min_size=1), st.sampled_from([pa.int64(), pa.string(), pa.decimal128(5, 2), pa.date32()]))
def test_no_value_is_in_a_cause(value: str, kind: pa.DataType) -> None:
    (cause,) = causes_of(pa.array([wrong_type("v", f"<{value}>", kind)])).to_pylist()
    assert "<" not in cause


@pytest.mark.parametrize("unique", [{}, {"unique_for": "30 seconds"}])
def test_numbers_by_cause_are_no_counts_of_a_batch(unique: dict[str, str]) -> None:
    with Seen({**SESSIONS, "event": {**SESSIONS["event"], **unique}}, schema={"v": "long"}) as harness:
        rows = [{"user": "ann", "at": at, "id": str(at), "v": 1} for at in range(3)]
        bad = [{"user": None, "at": 1, "id": "x"}, {"user": "", "at": 1, "id": "y"}, {"user": None, "at": 2, "id": "z"}]
        output = harness.process([*rows, *bad, {"user": "bob", "at": 1, "id": "w", "v": "one"}])
        assert by_cause(harness.stats) == {"null key": 2, "empty key": 1, "wrong type: v is not a int64": 1}
        assert not [name for name in output.counts if name.startswith("cause")]
        assert (output.counts["dead"], len(output.dead)) == (4, 4)


def test_events_without_an_id_are_counted_too() -> None:
    with Seen({**SESSIONS, "event": {**SESSIONS["event"], "unique_for": "30 seconds"}}) as harness:
        harness.process([{"user": "ann", "at": 1, "v": 1, "id": None}])
        assert list(by_cause(harness.stats).values()) == [1]


def test_those_of_both_sides_of_a_join_are_added() -> None:
    with Seen(PAIRS) as harness:
        rows = [{"user": None, "at": 1, "id": "a"}]
        output = harness.process({"left": rows, "right": rows})
        assert by_cause(harness.stats) == {"null key": 2}
        assert not [name for name in output.counts if "cause" in name]


def test_a_line_if_most_rows_are_dead_letters() -> None:
    assert notes_of({"input": 4, "dead": 2, "cause:null key": 2}) == []
    assert notes_of({"input": 0, "dead": 0}) == []
    (note,) = notes_of({"input": 1000, "dead": 999, "cause:null key": 9, "cause:wrong type: v is not a long": 990})
    assert note.startswith(
        "999 of this batch's 1,000 rows are dead letters, 990 of them: wrong type: v is not a long; "
    )


def test_a_run_whose_rows_are_all_refused_names_the_cause_and_no_grace(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(tmp_path)
    write_rows(tmp_path, "0.json", [{"key": "ann", "time_us": "click", "v": 1}] * 3 + ["no JSON"])
    with caplog.at_level(logging.WARNING, "sessionlake"):
        summary = run(spark, config, once=True)
    assert summary.warnings == [
        "100% of this run's 4 events were dead, 3 of them: unparsable time; look into dead_letters"
    ]
    lines = [record.getMessage() for record in caplog.records if "dead letters" in record.getMessage()]
    told = "4 of this batch's 4 rows are dead letters, 3 of them: unparsable time; dead_letters has each row with its reason"
    assert lines == [f"sessionlake: {told}"]
    assert "click" not in str(lines)
