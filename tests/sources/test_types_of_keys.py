"""Inferred types of columns that identify events (rule 467), through the configs that name them; nothing is declared or pinned."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import parse_config
from sessionlake.preflight.sources import sources_without_spark
from sessionlake.stream.events import type_names
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.pinned import Pinned

CSV = "version,ts,amount\n1.1,2026-01-01T00:00:00Z,2.5\n1.10,2026-01-01T00:00:01Z,2.25\n"
SOURCE = {"kind": "files", "path": "events", "format": "csv"}
EVENT = {"key": "ts", "time": "ts"}
SESSION = {"session": {"gap": "1 minute", "grace": "1 hour", "retention": "1 day"}, "source": SOURCE}
SUMS = {"aggregates": {"n": "count_distinct(version)", "total": "sum(amount)"}}
SIDE = {"source": SOURCE, "event": {"time": "ts"}, "columns": ["amount"]}
LOOKUP = {"name": "t", "path": "table", "format": "csv", "on": "version", "columns": ["amount"]}
JOIN = {"on": ["version"], "retention": "1 day", "left": {"name": "l", "size": "1 minute", **SIDE}}
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({**SESSION, **SUMS, "event": EVENT}, "double"),
    "key": ({**SESSION, **SUMS, "event": {"key": "version", "time": "ts"}}, "string"),
    "further key": ({**SESSION, **SUMS, "event": {"key": ["ts", "version"], "time": "ts"}}, "string"),
    "id": ({**SESSION, **SUMS, "event": {**EVENT, "id": "version"}}, "string"),
    "computed key": (
        {**SESSION, **SUMS, "event": {"key": "k", "time": "ts", "columns": {"k": "round(version)"}}}, "double"
    ),
    "lookup": ({**SESSION, "aggregates": {"n": "sum(t_amount)"}, "event": EVENT, "lookup": [LOOKUP]}, "string"),
    "join": ({"join": {**JOIN, "right": {"name": "r", "size": "1 minute", **SIDE}}}, "string"),
    "table join": (
        {"table_join": {"on": ["version"], "left": {"name": "l", **SIDE}, "right": {"name": "r", **SIDE}}},
        "string",
    ),
}  # fmt: skip


def types(root: Path, config: dict[str, Any], pinned: Pinned | None = None) -> dict[str, str]:
    for name in ("events", "table"):
        (root / name).mkdir(exist_ok=True)
        (root / name / "a.csv").write_text(CSV)
    made = parse_config({"pipeline": {"name": "p", "warehouse": "wh"}, **config}, root)
    return type_names(kind_of(made).make(made, sources_without_spark(made), pinned).inputs)


@pytest.mark.parametrize("name", CONFIGS)
def test_versions_are_text_where_they_tell_events_apart(name: str, tmp_path: Path) -> None:
    config, wanted = CONFIGS[name]
    found = types(tmp_path, config)
    assert {kind for column, kind in found.items() if column.endswith("version")} == {wanted}
    assert {kind for column, kind in found.items() if column.endswith("amount")} == {"double"}


def test_types_that_are_declared_or_pinned_stay(tmp_path: Path) -> None:
    config, _ = CONFIGS["key"]
    declared = {**config, "source": {**SOURCE, "types": {"version": "double"}}}
    assert types(tmp_path, declared)["version"] == "double"
    pinned = Pinned({"version": "double", "ts": "string", "amount": "double"}, config["aggregates"])
    assert types(tmp_path, config, pinned)["version"] == "double"
