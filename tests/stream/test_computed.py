"""Computed columns that change, told without Spark (rule 217): whose text nobody but `where` reads may be another at any start."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import PipelineStateError
from sessionlake.preflight.sources import sources_without_spark
from sessionlake.stream.changes import Change, Class, changes, refusal, refusals
from sessionlake.stream.computed import asks_otherwise, columns_of, meanings, next_shapes
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.interrupted import check_columns
from sessionlake.stream.kinds import kind_of
from sessionlake.testing import Harness
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.history import our_metadata, user_metadata
from tests.stream.shaped import EVENT, OPERATORS, SCHEMA, SHAPE, SOURCE
from tests.support import make_config, write_rows

SESSION = {"gap": "10 minutes", "grace": "5 minutes", "retention": "2 hours"}
PLACES = {"pipeline": {"name": "demo", "warehouse": "lake", "store": "store"}, "source": SOURCE}
FIRST = {"n": "count()", "total": "sum(cost)"}
COLUMNS = {"price": "cast(price as double)", "cost": "price * n", "high": "n > 3"}


def committed(config: Config, **changed: Any) -> BatchCommit:
    """Return the commit of batch 7 under a config."""
    types = {"key": "string", "time_us": "int64", "price": "string", "n": "int64"}
    settings = Settings(config.rebuild_settings(), config.live_settings(), types, **changed)
    shards = (None,) * config.pipeline.shards
    return BatchCommit(config.pipeline.name, "c", 7, "x", {}, {}, shards, "1", settings, None, 0, 0)


def config_of(root: Path, columns: Mapping[str, str], aggregates: Mapping[str, str] = FIRST, **more: Any) -> Config:
    event = {"key": "key", "time": "time_us", "time_unit": "us", "where": "high", "columns": dict(columns)}
    return make_config(
        root, session=SESSION, event={**event, **more.pop("event", {})}, aggregates=dict(aggregates), **more
    )


def found(before: BatchCommit, after: Config) -> list[Change]:
    return changes(after, before, {})


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({**COLUMNS, "high": "n > 5"}, ["n > 3 -> n > 5"]),
        ({**COLUMNS, "low": "n < 2"}, ["+ n < 2"]),
        ({"double": "n * 2", **COLUMNS, "high": "double > 6"}, ["+ n * 2", "n > 3 -> double > 6"]),
        ({name: COLUMNS[name] for name in ("high", "price", "cost")}, []),
    ],
)  # fmt: skip
def test_what_where_alone_reads_is_live(tmp_path: Path, columns: dict[str, str], told: list[str]) -> None:
    before = committed(config_of(tmp_path, COLUMNS))
    after = found(before, config_of(tmp_path, columns))
    assert [(change.of, change.told) for change in after] == [(Class.LIVE, text) for text in told]
    assert {change.refusal for change in after} <= {None}
    # Jobs take it too, as they take another `where`.
    assert list(refusals(config_of(tmp_path, columns), before, {}, runs=False)) == []


def test_a_column_that_nobody_reads_may_go(tmp_path: Path) -> None:
    before = committed(config_of(tmp_path, COLUMNS))
    less = {name: text for name, text in COLUMNS.items() if name != "high"}
    (where, gone) = found(before, config_of(tmp_path, less, event={"where": "n > 3"}))
    assert (where.name, gone.name, gone.of, gone.told) == ("event.where", "event.columns.high", Class.LIVE, "- n > 3")
    none = found(before, config_of(tmp_path, {}, {}, event={"where": None}))
    assert {(change.name, change.of) for change in none if "columns" in change.name} == {
        (f"event.columns.{name}", Class.LIVE) for name in COLUMNS
    }


def test_an_aggregate_may_be_dropped_with_its_column(tmp_path: Path) -> None:
    before = committed(config_of(tmp_path, COLUMNS))
    after = config_of(tmp_path, {"high": COLUMNS["high"]}, {"n": "count()"})
    assert {(change.name, change.of) for change in found(before, after)} == {
        ("event.columns.price", Class.LIVE),
        ("event.columns.cost", Class.LIVE),
        ("aggregates.total", Class.DROPPED),
    }
    assert "--drop-aggregates" in str(refusal(after, before))
    assert list(refusals(after, before, {}, drops=True)) == []


@pytest.mark.parametrize(
    ("columns", "refused"),
    [
        ({**COLUMNS, "cost": "price"}, "event.columns.cost: changed from 'price * n' to 'price', and aggregates.total reads it, "),
        # Through another one.
        ({**COLUMNS, "price": "1.0"}, "event.columns.price: changed from 'cast(price as double)' to '1.0', and aggregates.total reads it, "),
        ({"price": COLUMNS["price"]}, "event.columns.cost: is gone, and was 'price * n', and aggregates.total reads it, "),
        # It would hide a column that is read of the source.
        ({"n": "n + 1", **COLUMNS}, "event.columns.n: is new, as 'n + 1', and aggregates.total reads it, "),
        ({**COLUMNS, "time_us": "time_us + 1"}, "event.columns.time_us: is new, as 'time_us + 1', and event.time reads it, "),
        # `cost` reads the source's price if that is above the computed one.
        ({name: COLUMNS[name] for name in ("cost", "price", "high")}, "event.columns.cost: 'price * n' reads other columns than before, by its place, and aggregates.total "),
    ],
)  # fmt: skip
def test_what_stored_results_depend_on_is_refused_by_the_name_of_its_reader(
    tmp_path: Path, columns: dict[str, str], refused: str
) -> None:
    before = committed(config_of(tmp_path, COLUMNS))
    told = refusal(config_of(tmp_path, columns), before)
    assert str(told).startswith(refused)
    assert "\n" not in str(told)
    assert [c.of for c in found(before, config_of(tmp_path, columns)) if c.refusal is not None] == [Class.REBUILD]


JOIN = {
    "on": ["user"],
    "retention": "1 hour",
    "left": {"name": "l", "source": SOURCE, "size": "1 minute", "columns": ["cost"]},
    "right": {"name": "r", "source": SOURCE, "size": "1 minute", "event": {"time": "at", "time_unit": "us"}},
}


@pytest.mark.parametrize("operator", [*OPERATORS, "join"])
def test_each_operator_names_all_that_it_reads(tmp_path: Path, operator: str) -> None:
    """What is computed for rows is bound, and what is computed for `where` alone is not; an operator that reads more must say so."""
    is_join = operator == "join"
    columns = {**SHAPE["columns"], "low": "n < 100", "late": "low and n < 50"}
    event = {**EVENT, "where": f"{SHAPE['where']} and late", "columns": columns}

    def sections(columns: dict[str, str]) -> dict[str, Any]:
        shaped = {**event, "columns": columns}
        if not is_join:
            return {"event": shaped, "source": SOURCE, **OPERATORS[operator]}
        timed = {name: value for name, value in shaped.items() if name != "key"}
        return {"join": {**JOIN, "left": {**JOIN["left"], "event": timed}}}

    def config(columns: dict[str, str]) -> Config:
        return parse_config({"pipeline": PLACES["pipeline"], **sections(columns)}, tmp_path)

    with Harness(sections(columns), schema={**SCHEMA, "s": "string"}) as harness:
        built = harness._build()
        events = built.spec.left.events if is_join else built.spec.events
        computed = meanings("event.columns", columns)
        read = set().union(*(computed[name].of for name in events.shape.types))
    at = "join.left.event" if is_join else "event"
    before = committed(config(columns))
    bound = {"user", "at", "cost", "price"}
    assert bound <= read
    for name, text in columns.items():
        (change,) = found(before, config({**columns, name: f"({text})"}))
        assert change.name == f"{at}.columns.{name}"
        assert (change.of == Class.REBUILD) == (name in read), name
    # One more, for `where`: where all columns are a row's, it would be one of them.
    (more,) = found(before, config({**columns, "more": "n < 7"}))
    assert (more.of == Class.LIVE) == (operator != "all columns")
    if operator == "all columns":
        assert "table.columns, which is not written and so has every column, reads it" in str(more.refusal)


def test_rows_that_are_taken_back_are_let_pass_by_one_meaning(tmp_path: Path) -> None:
    def config(high: str) -> Config:
        event = {"key": "user", "time": "at", "time_unit": "us", "where": "high", "columns": {"high": high}}
        source = {"kind": "change_feed", "path": "prices"}
        sections = {"pipeline": PLACES["pipeline"], "source": source, "event": event, "group": {}}
        return parse_config({**sections, "aggregates": {"n": "count()"}}, tmp_path)

    assert "and event.where reads it" in str(refusal(config("n > 5"), committed(config("n > 3"))))


CLASSES = """
class Some:
    columns = ("cost",)
    def reducer(self, left, right): return left
class Every:
    def reducer(self, left, right): return left
"""


@pytest.mark.parametrize(
    ("name", "reads"), [("Some", {"cost"}), ("Every", {"cost", "high", "low"}), ("No", {"cost", "high", "low"})]
)
def test_a_class_reads_the_columns_that_it_names_or_all(tmp_path: Path, name: str, reads: set[str]) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"classes_{name.lower()}.py").write_text(CLASSES)
    texts = {"own": f"classes_{name.lower()}:{name}"}

    def config(columns: dict[str, str]) -> Config:
        event = {"key": "key", "time": "time_us", "time_unit": "us", "columns": columns}
        pipeline = {"code": "code"}
        return make_config(tmp_path, session=SESSION, event=event, aggregates=texts, pipeline=pipeline)

    before = committed(config({"cost": "n", "high": "n > 3"}))
    others = {"cost": {"cost": "n * 2", "high": "n > 3"}, "high": {"cost": "n", "high": "n > 5"}}
    others["low"] = {"cost": "n", "high": "n > 3", "low": "n < 2"}
    refused = {column for column, columns in others.items() if refusal(config(columns), before) is not None}
    assert refused == reads


def test_a_name_that_was_dropped_comes_back_with_its_meaning_alone(tmp_path: Path) -> None:
    """Its column has values of before: neither a text over other columns nor one over the source's may follow under the name."""
    layouts = [
        {"since": 0, "texts": FIRST, "states": {}, "columns": []},
        {"since": 4, "texts": {"n": "count()"}, "states": {}, "columns": []},
    ]
    # Batch 4 dropped it, and batch 6 changed the column.
    changed = {**COLUMNS, "price": "2.0"}
    shapes = [{"since": 0, "columns": {"event.columns": COLUMNS}}, {"since": 6, "columns": {"event.columns": changed}}]
    before = committed(config_of(tmp_path, changed, {"n": "count()"}), layouts=layouts, shapes=shapes)
    told = str(refusal(config_of(tmp_path, changed), before))
    assert told.startswith("aggregates.total: was dropped, and event.columns.cost meant something else then, ")
    assert "and event.columns.cost meant something else" in str(refusal(config_of(tmp_path, {}), before))
    back = found(before, config_of(tmp_path, COLUMNS))
    assert {(change.name, change.of) for change in back} == {
        ("event.columns.price", Class.LIVE),
        ("aggregates.total", Class.ADDED),
    }
    (fresh,) = found(before, config_of(tmp_path, changed, {"n": "count()", "total_2": "sum(cost)"}))
    assert (fresh.of, fresh.name) == (Class.ADDED, "aggregates.total_2")


def test_commits_list_the_columns_that_batches_had(tmp_path: Path) -> None:
    at = "event.columns"
    first = committed(config_of(tmp_path, COLUMNS))
    assert next_shapes(config_of(tmp_path, COLUMNS), None) == next_shapes(config_of(tmp_path, COLUMNS), first) == ()
    # What no column was called cannot have been read.
    grown = config_of(tmp_path, {**COLUMNS, "low": "n < 2"})
    assert next_shapes(grown, first) == ()
    more, other = {**COLUMNS, "low": "n < 2"}, {**COLUMNS, "low": "n < 3"}
    hiding = next_shapes(config_of(tmp_path, {**COLUMNS, "key": "'k'"}), first)
    assert [shape["since"] for shape in hiding] == [0, 8]
    shapes = next_shapes(config_of(tmp_path, other), committed(grown))
    assert [(shape["since"], shape["columns"][at]) for shape in shapes] == [(0, more), (8, other)]
    # From then on each difference is listed.
    then = replace(committed(config_of(tmp_path, other), shapes=shapes), batch_id=12)
    shapes = next_shapes(config_of(tmp_path, {}), then)
    assert [shape["since"] for shape in shapes] == [0, 8, 13]
    last = committed(config_of(tmp_path, {}), shapes=shapes).settings
    assert [columns_of(last, at, batch) for batch in (0, 7, 8, 12, 13, 99)] == [more, more, other, other, {}, {}]
    assert columns_of(first.settings, at, 3) == COLUMNS


def test_another_where_by_its_text_or_by_its_columns(tmp_path: Path) -> None:
    settings = committed(config_of(tmp_path, COLUMNS)).settings
    same = ({**COLUMNS, "cost": "price"}, {name: COLUMNS[name] for name in ("high", "cost")})
    assert {asks_otherwise(config_of(tmp_path, columns, {}), settings) for columns in same} == {False}
    assert asks_otherwise(config_of(tmp_path, {**COLUMNS, "high": "n > 5"}), settings)
    for where in ("not high", None):
        assert asks_otherwise(config_of(tmp_path, COLUMNS, event={"where": where}), settings)


def test_an_interrupted_batch_of_a_table_that_reads_a_column_which_is_gone_is_refused_in_one_line(
    tmp_path: Path,
) -> None:
    """A file is read again for it, and of a table the stream gives the columns that the config reads."""
    rows = pa.table({"key": ["a"], "time_us": [1], "price": [2.0], "n": [3]})
    write_deltalake(str(tmp_path / "t"), rows)
    (tmp_path / "events").mkdir()
    write_rows(tmp_path, "0.json", rows.to_pylist())

    def inputs(aggregates: dict[str, str], source: dict[str, str]) -> tuple[Config, Mapping[str, EventSpec]]:
        event = {"key": "key", "time": "time_us", "time_unit": "us"}
        sections = {"pipeline": PLACES["pipeline"], "source": source, "event": event, "session": SESSION}
        config = parse_config({**sections, "aggregates": aggregates}, tmp_path)
        return config, kind_of(config).make(config, sources_without_spark(config), None).inputs

    less, more = {"n": "count()"}, {"n": "count()", "total": "sum(price)"}
    for source, told in (({"kind": "delta", "path": "t"}, "column 'price'"), (SOURCE, None)):
        (config, now), (_, before) = inputs(less, source), inputs(more, source)
        check_columns(config, before, now)
        with pytest.raises(PipelineStateError, match=told) if told else nullcontext():
            check_columns(config, now, before)


def test_commits_of_several_texts_are_of_a_format_that_older_releases_refuse(tmp_path: Path) -> None:
    first = committed(config_of(tmp_path, COLUMNS))
    shapes = next_shapes(config_of(tmp_path, {}), first)
    for commit, number in ((first, 2), (replace(first, settings=replace(first.settings, shapes=shapes)), 4)):
        written = our_metadata(user_metadata(commit.metadata()), "changelog")
        assert written is not None
        assert written["format"] == number
        assert written["settings"].get("shapes", ()) == list(commit.settings.shapes) or not commit.settings.shapes
