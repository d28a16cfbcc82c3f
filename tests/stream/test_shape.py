"""Rules 210 to 216: every operator over shaped rows does what it does over rows that were shaped before (tests/oracle/shape.py)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake import SessionWindows
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.standalone import Pipeline, WindowedAggregator
from sessionlake.stream.ingest import with_live_settings
from sessionlake.testing import Harness, SessionizerHarness
from tests.oracle.shape import Row, Value, shaped
from tests.stream.shaped import EVENT, OPERATORS, SCHEMA, SHAPE, SHAPED_SCHEMA, SOURCE


def number(text: Any) -> float | None:
    """Return the number that a text casts to."""
    return None if text in (None, "free") else float(text)


def times(a: float | None, b: float | None) -> float | None:
    """Return the product; null if one of them is."""
    return None if a is None or b is None else a * b


COLUMNS: Mapping[str, Value] = {
    "price": lambda row: number(row["price"]),
    "cost": lambda row: times(row["price"], row["n"]),
    "user": lambda row: None if row["user"] is None else f"<{row['user']}>",
    "at": lambda row: None if row["at"] is None else row["at"] + 5,
    "big": lambda row: None if row["cost"] is None else row["cost"] > 20,
}


def where(row: Row) -> bool:
    """Return whether `SHAPE["where"]` is true."""
    return row["type"] in ("buy", "click") and row["cost"] is not None and row["cost"] < 90


rows = st.lists(
    st.fixed_dictionaries(
        {
            "user": st.sampled_from(["a", "b", "c", None]),
            "at": st.sampled_from([*range(0, 100_000_000, 4_000_000), None]),
            "type": st.sampled_from(["buy", "click", "view", None]),
            "price": st.sampled_from(["1", "2.5", "9", "free", None]),
            "n": st.sampled_from([1, 3, 7, 30, None]),
        }
    ),
    min_size=1,
    max_size=12,
)
batches = st.lists(rows, min_size=1, max_size=3)


def without_source(row: Row, names: tuple[str, ...] = ("user", "at", "price")) -> dict[str, Any]:
    """Return an output's row but for the columns that are computed, of which the given row has the source's."""
    return {name: value for name, value in row.items() if name not in (*names, "cost", "big")}


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=6, deadline=None)
@given(batches=batches)
def test_every_operator_sees_shaped_rows(name: str, batches: list[list[Row]]) -> None:
    parts = OPERATORS[name]
    with (
        Harness({"source": SOURCE, "event": {**EVENT, **SHAPE}, **parts}, schema=SCHEMA) as ours,
        Harness({"source": SOURCE, "event": EVENT, **parts}, schema=SHAPED_SCHEMA) as plain,
    ):
        for batch in batches:
            kept, filtered = shaped(batch, COLUMNS, where)
            found, wanted = ours.process(batch), plain.process(kept)
            assert sorted(map(repr, map(by_name, found.changes))) == sorted(map(repr, map(by_name, wanted.changes)))
            assert list(map(without_source, found.late)) == list(map(without_source, wanted.late))
            assert list(map(without_source, found.dead)) == list(map(without_source, wanted.dead))
            assert found.counts.get("filtered", 0) == filtered
            assert found.counts["input"] == len(batch) == wanted.counts.get("input", 0) + filtered
        assert ours.state == plain.state


def by_name(row: Row) -> list[tuple[str, Any]]:
    """Return a row's columns in the order of their names: a table of all columns has the computed ones last."""
    return sorted(row.items())


@settings(max_examples=6, deadline=None)
@given(left=rows, right=rows)
def test_each_side_of_a_join_has_its_shape(left: list[Row], right: list[Row]) -> None:
    def side(name: str, event: Mapping[str, Any], columns: list[str]) -> dict[str, Any]:
        timed = {"time": "at", "time_unit": "us", **event}
        return {"name": name, "source": SOURCE, "event": timed, "columns": columns, "size": "10 seconds"}

    def config(event: Mapping[str, Any]) -> dict[str, Any]:
        sides = {"left": side("l", event, ["cost", "big"]), "right": side("r", {}, ["n"])}
        return {"join": {**sides, "on": ["user"], "retention": "100 seconds"}}

    kept, filtered = shaped(left, COLUMNS, where)
    with Harness(config(SHAPE), schema=SCHEMA) as ours, Harness(config({}), schema=SHAPED_SCHEMA) as plain:
        given_ours = {"left": left, "right": [{**row, "user": f"<{row['user']}>"} for row in right]}
        found, wanted = ours.process(given_ours), plain.process({**given_ours, "left": kept})
        assert found.changes == wanted.changes
        assert found.counts["filtered"] == found.counts["filtered:left"] == filtered


SIMPLE = {"session": {"gap": "10 seconds"}, "aggregates": {"total": "sum(cost)"}}


@pytest.mark.parametrize(
    ("row", "outcome"),
    [
        ({"type": "view", "price": 7}, "filtered"),
        ({"type": "buy", "price": 7}, "dead"),
        ({"type": True, "price": "1"}, "dead"),
        ({"type": "view", "price": "1"}, "filtered"),
        ({"type": None, "price": "1"}, "filtered"),
        ({"type": "buy", "price": "1"}, "accepted"),
        ({"type": "buy", "price": None, "user": None}, "dead"),
        ({"type": "view", "price": None, "user": None, "at": None}, "filtered"),
    ],
)
def test_wrong_types_rule_213(row: Row, outcome: str) -> None:
    event = {**EVENT, "where": "type = 'buy'", "columns": {"cost": "cast(price as double)"}}
    with Harness({"source": SOURCE, "event": event, **SIMPLE}, schema=SCHEMA) as harness:
        counts = harness.process([{"user": "a", "at": 0, **row}]).counts
    assert {name for name in ("accepted", "dead", "filtered") if counts.get(name)} == {outcome}


def test_filtered_rows_move_no_watermark() -> None:
    event = {**EVENT, "where": "type = 'buy'"}
    parts = {"session": {"gap": "10 seconds"}, "aggregates": {"n": "count()"}}
    with Harness({"source": SOURCE, "event": event, **parts}, schema=SCHEMA) as harness:
        harness.process([{"user": "a", "at": 5, "type": "buy"}, {"user": "a", "at": 10**9, "type": "view"}])
        assert harness.watermark_us == 5


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ({"where": "type ="}, "event.where"),
        ({"where": "n + 1"}, "event.where: 'n + 1' is of type bigint; make it boolean"),
        ({"where": "at2 > now()"}, "asks for the present"),
        ({"columns": {"x": "now()"}}, "event.columns.x: 'now()' asks for the present"),
        (
            {"columns": {"x": "interval 1 hour"}},
            "event.columns.x: 'interval 1 hour' is of type interval; make it boolean or",
        ),
        ({"columns": {"x y": "1"}}, "event.columns.x y: 'x y' can't name a column"),
        ({"columns": {"a": "1", "A": "2"}}, "event.columns.A: 'a' is its name but for case"),
        ({"columns": {"a": "nosuch(n)"}}, "'nosuch' is not listed"),
    ],
)
def test_refusals_are_one_line(shape: dict[str, Any], told: str) -> None:
    parts = {"session": {"gap": "10 seconds"}, "aggregates": {"x2": "max(x)", "a2": "max(a)"}}
    event = {**EVENT, **shape}
    with (
        pytest.raises(ConfigError) as raised,
        Harness({"source": SOURCE, "event": event, **parts}, schema={**SCHEMA, "at2": "timestamp"}) as harness,
    ):
        harness.process([{"user": "a", "at": 0}])
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_directory_without_spark_learns_the_types_of_its_first_message(tmp_path: Path) -> None:
    config = {"source": SOURCE, "event": {**EVENT, **SHAPE}, **SIMPLE}
    with Pipeline(tmp_path / "a", config) as run:
        run.add_message({"user": "a", "at": 0, "type": "buy", "price": "2.5", "n": 2}, clock_us=0)
        run.add_message({"user": "a", "at": 1, "type": "view", "price": "2.5", "n": 2}, clock_us=0)
        assert [(row["session_key"], row["total"]) for row in run.get_result()] == [("<a>", 5.0)]
        assert (run.counts["accepted"], run.counts["filtered"]) == (1, 1)
        run.flush()
    with Pipeline(tmp_path / "a", config) as run:
        run.add_message({"user": "a", "at": 2, "type": "buy", "price": "1", "n": 1}, clock_us=0)
        assert [row["total"] for row in run.get_result()] == [6.0]


def test_another_text_of_where_holds_for_the_batches_that_have_it() -> None:
    event = {**EVENT, "where": "n > 1"}
    parts = {"session": {"gap": "10 seconds"}, "aggregates": {"n": "sum(n)"}}
    with Harness({"source": SOURCE, "event": event, **parts}, schema=SCHEMA) as harness:
        harness.process([{"user": "a", "at": 0, "n": 1}])
        spec = harness._build().spec.events
        live = {"beyond_retention": "drop", "max_future_skew_us": None}
        assert with_live_settings(spec, {**live, "where": "n > 1"}).shape == spec.shape
        assert with_live_settings(spec, live).shape.where is None
        assert with_live_settings(spec, {**live, "where": "n > 5"}).shape.where == "n > 5"
        with pytest.raises(PipelineStateError, match="a batch was read under 'type = 1', and 'type' is read no more"):
            with_live_settings(spec, {**live, "where": "type = 1"})


def test_where_of_a_batch_asks_the_columns_of_that_batch() -> None:
    event = {**EVENT, "where": "high", "columns": {"high": "n > 1", "twice": "n * 2"}}
    parts = {"session": {"gap": "10 seconds"}, "aggregates": {"n": "sum(twice)"}}
    rows = pa.table({"user": ["a"] * 4, "at": [0] * 4, "n": [1, 2, 5, 9]})
    with Harness({"source": SOURCE, "event": event, **parts}, schema=SCHEMA) as harness:
        harness.process([{"user": "a", "at": 0, "n": 1}])
        spec = harness._build().spec.events
        live = {"beyond_retention": "drop", "max_future_skew_us": None, "where": "high"}
        assert with_live_settings(spec, {**live, "columns": event["columns"]}).shape == spec.shape
        then = {"at": "n + 1", "high": "at > 5 and n < 9", "twice": "n * 2"}
        shape = with_live_settings(spec, {**live, "columns": then}).shape
        assert shape.kept(rows, None).tolist() == [False, False, True, False]
        # What the operator reads is of its own columns, whose meaning was the same then.
        assert (shape.values, shape.own) == (spec.shape.values, spec.shape.own)
        with pytest.raises(PipelineStateError, match="a batch was read under 'high', and 'type' is read no more"):
            with_live_settings(spec, {**live, "columns": {"high": "type = 'a'"}})


FILTERED = {
    "revenue": "sum(cast(price as double) * n) filter (where type = 'buy')",
    "buys": "count() filter (where type = 'buy')",
    "own": "count_if(key = 'a' and event_time >= timestamp '1970-01-01 00:00:20')",
    "dear": "max(case when price <> 'free' then cast(price as double) end)",
}
PLAIN = {"revenue": "sum(revenue)", "buys": "count_if(bought)", "own": "count_if(own)", "dear": "max(price)"}
BEFORE: Mapping[str, Value] = {
    "price": lambda row: number(row["price"]),
    "bought": lambda row: None if row["type"] is None else row["type"] == "buy",
    "revenue": lambda row: times(row["price"], row["n"]) if row["bought"] else None,
    "own": lambda row: row["user"] == "a" and row["at"] is not None and row["at"] >= 20_000_000,
}
BEFORE_SCHEMA = {**SHAPED_SCHEMA, "bought": "boolean", "revenue": "double", "own": "boolean"}


@pytest.mark.parametrize("name", ["sessions", "windows", "counts"])
@settings(max_examples=6, deadline=None)
@given(batches=batches)
def test_sql_and_filter_in_aggregates_rule_215(name: str, batches: list[list[Row]]) -> None:
    parts = {key: value for key, value in OPERATORS[name].items() if key != "aggregates"}
    base = {"source": SOURCE, "event": EVENT, **parts}
    with (
        Harness({**base, "aggregates": FILTERED}, schema=SCHEMA) as ours,
        Harness({**base, "aggregates": PLAIN}, schema=BEFORE_SCHEMA) as plain,
    ):
        for batch in batches:
            kept, _ = shaped(batch, BEFORE, lambda _: True)
            found, wanted = ours.process(batch), plain.process(kept)
            assert found.changes == wanted.changes
            assert found.counts == wanted.counts


def test_harnesses_and_aggregators_without_a_config_take_sql(tmp_path: Path) -> None:
    texts = {"total": "sum(v * 2) filter (where type = 'a')", "n": "count_if(v > 1)"}
    with SessionizerHarness(SessionWindows.with_gap("30 seconds"), texts) as harness:
        rows = [{"key": "k", "time_us": i, "v": i, "type": "ab"[i % 2]} for i in range(4)]
        assert [(row["total"], row["n"]) for row in harness.process(rows).changes] == [(4, 2)]
    windows = SessionWindows.with_gap("30 seconds")
    with WindowedAggregator(tmp_path / "w", windows, texts, key="key", time="time_us") as aggregator:
        for row in rows:
            aggregator.add_message(row, clock_us=0)
        assert [(row["total"], row["n"]) for row in aggregator.get_windows(0, 10)] == [(4, 2)]
