"""Pipelines that get aggregates between batches: their configs by operator, and their events."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.support import write_rows

EVENT = {"key": "key", "time": "time_us", "time_unit": "us", "id": "id"}
KEPT = {"grace": "500 us", "retention": "5000 us"}
WINDOW = {"grace": "500 us", "retention": "5000 us"}
BY_POLICY = {"session": {"gap": "10 us", **KEPT}, "emit": {"early": "1 second", "full": "end"}}
AT_ONCE = {"emit": {"early": "batch"}}
FORMS: Mapping[str, dict[str, Any]] = {
    "session": {"session": {"gap": "10 us", **KEPT}},
    "policy": BY_POLICY,
    "tumbling": {"window": {"kind": "tumbling", "size": "20 us", **WINDOW}, **AT_ONCE},
    "hopping": {"window": {"kind": "hopping", "size": "20 us", "advance": "10 us", **WINDOW}, **AT_ONCE},
    "count": {
        "window": {
            "kind": "hopping",
            "by": "count",
            "size": 4,
            "advance": 2,
            "retention": "1 day",
            "retention_count": 1000,
        },
        **AT_ONCE,
    },
}
FIRST = {"n": "count()", "total": "sum(v)"}
ADDED = {"refunds": "sum(price) filter (where type = 'refund')", "most": "max(v)"}
EVER = {"from_us": -1000, "to_us": 10_000}


def config_of(
    root: Path, form: str, aggregates: Mapping[str, str], *, archive: bool | str = False, **more: Any
) -> Config:
    (root / "events").mkdir(parents=True, exist_ok=True)
    sections = {
        "pipeline": {"name": "growing", "warehouse": "warehouse", "store": "store", "shards": 2, "archive": archive},
        "source": {"kind": "files", "path": "events", "format": "json"},
        "event": {**EVENT, **more.pop("event", {})},
        "aggregates": dict(aggregates),
        **FORMS[form],
        **more,
    }
    return parse_config(sections, root)


def events(number: int) -> list[dict[str, Any]]:
    """Return those of a file: of some keys, whose sessions go on from file to file, and none too late."""
    random = Random(number)
    types, times = ("refund", "buy"), range(40 * number, 40 * number + 60)
    return [
        {
            "key": random.choice("abcde"),
            "time_us": random.choice(times),
            "id": f"e{number}-{n}",
            "v": random.randrange(1, 9),
            "price": random.randrange(1, 90),
            "type": random.choice(types),
        }
        for n in range(16)
    ]


def rows(spark: SparkSession, config: Config) -> dict[tuple[Any, ...], dict[str, Any]]:
    tables = Tables.of(spark, config)
    of = tables.changelog
    return {tuple(row[name] for name in of.identity): row.asDict() for row in merged_rows(tables).collect()}


def shown(spark: SparkSession, config: Config, *names: str) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    return {key: tuple(row[name] for name in names) for key, row in rows(spark, config).items()}


def files(root: Path, *numbers: int) -> None:
    for number in numbers:
        write_rows(root, f"{number}.json", events(number))
