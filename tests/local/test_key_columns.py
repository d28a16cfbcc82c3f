"""Keys of several columns without Spark: the same results as by one column that tells the keys apart, for each operator."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.load import parse_config
from sessionlake.config.operators import OPERATORS
from sessionlake.errors import ConfigError
from sessionlake.standalone.pipeline import Pipeline
from sessionlake.testing import Harness
from sessionlake.warehouse.changelog import changelog_of
from tests.columnar.awkward_texts import AWKWARD
from tests.operators.process import processors
from tests.support import examples

Row = dict[str, Any]
MINUTE_US = 60_000_000
FILES = {"kind": "files", "path": "events", "format": "json"}
TIME = {"time": "at", "time_unit": "us"}
SUM = {"aggregates": {"total": "sum(v)"}}
SCHEMA = {"at": "long", "v": "long", "tag": "string"}
SECTIONS: dict[str, dict[str, Any]] = {
    "session": {**SUM, "session": {"gap": "10 minutes", "grace": "5 minutes", "retention": "1 hour"}},
    "window": {**SUM, "window": {"kind": "tumbling", "size": "10 minutes", "retention": "1 hour"}},
    "count": {
        **SUM,
        "window": {"kind": "tumbling", "by": "count", "size": 2, "retention": "1 hour", "retention_count": 10},
    },
    "table": {"table": {"columns": ["v"]}},
    "group": {**SUM, "group": {}},
    "process": {
        "pipeline": {"name": "local", "warehouse": "warehouse", "code": str(Path(processors.__file__).parent)},
        "process": {
            "class": "processors:Pauses",
            "columns": ["v", "tag"],
            "retention": "1 hour",
            "output": {"text": "string", "number": "long"},
        },
    },
}


def config_of(operator: str, key: Any, **event: Any) -> dict[str, Any]:
    """Return a config of an operator by a key; of a join by equal fields."""
    if operator not in ("join", "table_join"):
        return {"source": FILES, "event": {"key": key, **TIME, **event}, **SECTIONS[operator]}
    on = [key] if isinstance(key, str) else key
    side = {"size": "10 minutes", "columns": ["v"], "source": FILES, "event": TIME}
    sides = {at: {"name": name, **side} for at, name in (("left", "one"), ("right", "two"))}
    if operator == "table_join":
        return {
            operator: {
                "on": on,
                **{at: {k: v for k, v in s.items() if k != "size"} for at, s in sides.items()},
            }
        }
    return {"join": {"on": on, "retention": "1 hour", **sides}}


def alone(tenant: str | None, user: str | None) -> str | None:
    """Return a text that tells a pair of texts from all others."""
    return None if tenant is None or user is None else f"{len(tenant)} {tenant} {user}"


texts = st.one_of(st.none(), st.sampled_from(AWKWARD), st.text(st.characters(exclude_categories=["Cs"]), max_size=3))
events = st.tuples(texts, texts, st.integers(0, 60), st.integers(-9, 9), st.sampled_from("abe"))
batches = st.lists(st.lists(events, max_size=8), min_size=1, max_size=3)


def given_rows(batch: list[tuple[Any, ...]]) -> list[Row]:
    return [
        {"tenant": t, "user": u, "alone": alone(t, u), "at": at * MINUTE_US, "v": v, "tag": tag}
        for t, u, at, v, tag in batch
    ]


def results(config: dict[str, Any], given: list[list[tuple[Any, ...]]]) -> tuple[list[Row], list[Row], list[Any]]:
    """Return changes, dead letters and counts of all batches."""
    changes, dead, counts = [], [], []
    with Harness(config, schema={**SCHEMA, **dict.fromkeys(("tenant", "user", "alone"), "string")}) as harness:
        names = list(parse_config({"pipeline": {"name": "x", "warehouse": "x"}, **config}, Path()).inputs)
        for batch in given:
            rows = given_rows(batch)
            output = harness.process(dict.fromkeys(names, rows), corrections=[])
            changes += output.changes
            dead += output.dead
            counts.append({name: n for name, n in output.counts.items() if n})
    return changes, dead, counts


@pytest.mark.parametrize("operator", sorted(OPERATORS))
@given(given=batches)
@examples(40)
def test_columns_part_events_as_one_that_tells_them_apart(operator: str, given: list[list[tuple[Any, ...]]]) -> None:
    config = config_of(operator, ["tenant", "user"])
    of = changelog_of(parse_config({"pipeline": {"name": "x", "warehouse": "x"}, **config}, Path()))
    changes, dead, counts = results(config, given)
    by_one, dead_by_one, counts_by_one = results(config_of(operator, "alone"), given)
    assert (dead, counts) == (dead_by_one, counts_by_one)
    for row in changes:
        assert list(row)[list(row).index(of.key) + 1 :][:2] == ["tenant", "user"]
        row[of.key] = alone(row.pop("tenant"), row.pop("user"))
    assert sorted(changes, key=repr) == sorted(by_one, key=repr)


@pytest.mark.parametrize("operator", sorted({*OPERATORS} - {"join", "table_join"}))
def test_a_list_of_one_column_is_that_column(operator: str) -> None:
    given = [[("acme", "u7", 0, 1, "a"), ("", "u", 1, 1, "a"), (None, "u", 2, 1, "a")]]
    listed = results(config_of(operator, ["tenant"]), given)
    assert listed == results(config_of(operator, "tenant"), given)
    assert sorted(row["reason"] for row in listed[1]) == ["empty key", "null key"]


@pytest.mark.parametrize("operator", sorted({*OPERATORS} - {"join", "table_join"}))
def test_the_length_of_a_key_is_that_of_the_array(operator: str) -> None:
    given = [[("a" * 10, "b" * 10, 0, 1, "a"), ("a" * 10, "b" * 9, 0, 1, "a")]]
    _, dead, _ = results(config_of(operator, ["tenant", "user"], max_key_bytes=26), given)
    assert [row["reason"] for row in dead] == ["key too long: 27 bytes, event.max_key_bytes is 26"]


def test_an_id_of_several_columns_is_one_text() -> None:
    config = config_of("table", ["tenant", "user"], id=["tenant", "v"])
    changes, _, _ = results(config, [[('a"', "u", 1, 5, "a"), ('a"', "u", 1, 4, "a"), ('a"', "w", 0, 1, "a")]])
    assert [(row["user"], row["event_id"], row["v"]) for row in changes] == [
        ("u", '["a\\"","5"]', 5),
        ("w", '["a\\"","1"]', 1),
    ]


def test_a_pipeline_without_spark_has_the_columns_of_its_keys(tmp_path: Path) -> None:
    config = config_of("table", ["tenant", "user"])
    with Pipeline(tmp_path / "one", config) as pipeline:
        pipeline.add_message({"tenant": "acme", "user": "u7", "at": 0, "v": 1}, clock_us=0)
        pipeline.flush()
    with Pipeline(tmp_path / "one", config) as pipeline:
        pipeline.add_message({"tenant": "acme", "user": "u7", "at": 1, "v": 2}, clock_us=0)
        [row] = pipeline.get_result()
    assert (row["table_key"], row["tenant"], row["user"], row["v"]) == ('["acme","u7"]', "acme", "u7", 2)


@pytest.mark.parametrize("operator", ["table", "session"])
def test_the_sql_of_ttl_sees_the_columns(operator: str) -> None:
    config = config_of(operator, ["tenant", "user"])
    config["ttl"] = {"pattern": "scan", "where": "tenant = 'acme' and user <> ''", "max_share": 1.0}
    keys = [("acme", "u7"), ("acme", ""), ("other", "u7")]
    rows = [{"tenant": t, "user": u, "at": 0, "v": 1} for t, u in keys]
    with Harness(config, schema={"at": "long", "v": "long"}) as harness:
        outputs = [harness.process(rows), harness.advance(40 * MINUTE_US, 40 * MINUTE_US)]
        outputs += [harness.tick(minute * MINUTE_US) for minute in (41, 42)]
    changes = [row for output in outputs for row in output.changes]
    gone = [(row["tenant"], row["user"]) for row in changes if row["op"] == "delete"]
    assert gone == [("acme", "u7")]


@pytest.mark.parametrize(
    ("operator", "key", "more", "line"),
    [
        ("session", ["tenant", "total"], {}, "event.key: 'total' is a column of the rows beside the key"),
        ("table", ["tenant", "v"], {}, "event.key: 'v' is a column of the rows beside the key"),
        ("table", ["tenant", "revision"], {}, "event.key: 'revision' is a column of the rows beside the key"),
        ("process", ["tenant", "Text"], {}, "event.key: 'Text' is a column of the rows beside the key"),
        ("window", ["tenant", "final"], {}, "event.key: 'final' is a column of the rows beside the key"),
        (
            "table",
            ["tenant", "user"],
            {"ttl": {"pattern": "time_ordered_keys", "ttl": "1 day"}},
            "ttl.pattern: 'time_ordered_keys' reads the time from the beginning of a key, and event.key is ['tenant', 'user']; write pattern = 'index'",
        ),
    ],
)
def test_names_and_patterns_that_do_not_go_with_the_columns(
    operator: str, key: list[str], more: Row, line: str
) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as raised:
        parse_config({"pipeline": {"name": "x", "warehouse": "x"}, **config_of(operator, key), **more}, Path())
    assert line in str(raised.value)


def test_a_join_whose_field_is_called_as_another_column_has_none_beside_the_key() -> None:
    config = config_of("join", ["tenant", "position"])
    given = [{"tenant": "acme", "position": "x", "at": 0, "v": 1}]
    with Harness(config, schema={"position": "string"}) as harness:
        [row] = harness.process({"left": given, "right": given}).changes
    assert row["join_key"] == '["acme","x"]'
    assert "tenant" not in row
