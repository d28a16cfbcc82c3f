"""The columns and types of an exploded source, and what is refused (rule 463)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.preflight.check import check
from sessionlake.preflight.sources import sources_without_spark

ROW = {
    "user": "ann",
    "at": "2026-01-01T00:00:00Z",
    "cart": {"items": [{"sku": 0.1, "n": 1}], "tags": ["a"]},
    "props": {"a": 1},
}


def config_of(root: Path, *rows: Any, types: dict[str, str] | None = None, **event: Any) -> Config:
    (root / "events").mkdir(exist_ok=True)
    (root / "events" / "1.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return parse_config(
        {
            "pipeline": {"name": "sold", "warehouse": "warehouse"},
            "source": {"kind": "files", "path": "events", "format": "json", "types": types or {}},
            "event": {"key": "cart.items.sku", "time": "at", "explode": "cart.items", **event},
            "session": {"gap": "1 hour", "grace": "1 hour", "retention": "1 day"},
            "aggregates": {"n": "sum(cart.items.n)"},
        },
        root,
    )


def types_of(config: Config, *names: str, identity: tuple[str, ...] = ()) -> dict[str, pa.DataType]:
    return sources_without_spark(config)["events"].types(names, frozenset(identity))


def test_types_of_elements_are_inferred_as_those_of_columns(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "cart": {"items": [{"sku": 0.1000000000000000055, "n": 2}]}}]
    config = config_of(tmp_path, *rows)
    (tmp_path / "events" / "2.json").write_text('{"cart": {"items": [{"sku": 0.10000000000000000001}]}}\n')
    named = ("cart.items.sku", "cart.items.n", "user", "_element")
    plain = {"cart.items.n": pa.int64(), "user": pa.string(), "_element": pa.int64()}
    assert types_of(config, *named) == {"cart.items.sku": pa.float64(), **plain}
    # As of a column: different texts that are one double are no key.
    assert types_of(config, *named, identity=named) == {"cart.items.sku": pa.string(), **plain}


def test_declared_types_need_no_rows(tmp_path: Path) -> None:
    config = config_of(tmp_path, types={"cart.items.sku": "string", "cart.items.n": "long", "at": "timestamp"})
    assert types_of(config, "cart.items.sku", "cart.items.n", "at")["cart.items.sku"] == pa.string()
    whole = config_of(tmp_path, types={"cart.items": "array<struct<sku: string, n: bigint>>", "at": "timestamp"})
    assert types_of(whole, "cart.items.sku", "cart.items.n")["cart.items.n"] == pa.int64()


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"explode": "user"}, "event.explode: 'user' is of type string; name a list, whose elements are the events"),
        ({"explode": "props"}, "event.explode: 'props' is of type struct<a: bigint>; name a list"),
        ({"explode": "cart"}, "event.explode: 'cart' is of type struct<"),
        ({"explode": "nope"}, "event.explode: 'nope' is no column of"),
        ({"key": "cart.items"}, "event.key: 'cart.items' has fields; write 'cart.items.sku'"),
        ({"where": "cart is not null"}, "event.explode: 'cart' has the list 'cart.items', and can't be read whole"),
        ({"where": "cart.items.x = 1"}, "event.where: 'cart.items.x = 1' reads 'cart.items.x', which is no column of"),
    ],
)
def test_what_is_no_list_of_such_elements_is_one_line(tmp_path: Path, event: dict[str, Any], told: str) -> None:
    problems = check(config_of(tmp_path, ROW, **event)).problems
    assert told in f"{problems[0].key}: {problems[0].message}"


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        (
            {"event": {"explode_outer": "b"}},
            "event.explode: goes without explode_outer, which also keeps rows without elements",
        ),
        ({"source": {"format": "csv"}}, "event.explode: rows of format 'csv' have no lists; remove it"),
        (
            {"source": {"format": "parquet"}, "pipeline": {"archive": "all"}},
            "pipeline.archive: 'all' keeps no lists of this source",
        ),
        ({"event": {"explode": None, "id": "_element"}}, "event.id: '_element' is the number of an exploded element"),
        ({"event": {"explode": "items[0]"}}, "event.explode: 'items[0]' is no name of a column"),
    ],
)
def test_configs_that_can_not_be(tmp_path: Path, sections: dict[str, dict[str, Any]], told: str) -> None:
    raw: dict[str, dict[str, Any]] = {
        "pipeline": {"name": "sold", "warehouse": "warehouse"},
        "source": {"kind": "files", "path": "events", "format": "json"},
        "event": {"key": "a.sku", "time": "at", "explode": "a"},
        "session": {"gap": "1 hour", "grace": "1 hour", "retention": "1 day"},
        "aggregates": {"n": "count()"},
    }
    for name, section in sections.items():
        raw[name] = {key: value for key, value in {**raw[name], **section}.items() if value is not None}
    with pytest.raises(ConfigError) as caught:
        parse_config(raw, tmp_path)
    assert told in str(caught.value)
