"""Fields of nested events on Spark, from each kind of source: the same groups, and a person who is forgotten (rules 460 to 462)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, parse_config
from sessionlake.jobs.forget.job import forget
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from tests.sources.kafka_support import Topic
from tests.sources.registry_support import Registry, record, serving, written

Row = dict[str, Any]
ROWS: list[Row] = [
    {
        "who": {"id": f"person-{number % 3}", "shop": {"name": "one" if number % 2 else "two"}},
        "page": {"url": f"/{number % 4}", "ms": None if number % 5 == 0 else number},
        "at": 1_700_000_000 + number,
    }
    for number in range(40)
]
WHERE = "page.url <> '/1'"
ARROW = pa.schema(
    [
        ("who", pa.struct([("id", pa.string()), ("shop", pa.struct([("name", pa.string())]))])),
        ("page", pa.struct([("url", pa.string()), ("ms", pa.int64())])),
        ("at", pa.int64()),
    ]
)


def config_over(root: Path, source: Row) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "nested", "warehouse": "warehouse", "shards": 2},
            "source": source,
            "event": {"key": ["who.shop.name", "who.id"], "time": "at", "time_unit": "s", "where": WHERE},
            "group": {},
            "aggregates": {
                "spent": "sum(page.ms)",
                "urls": "count_distinct(page.url)",
                "slow": "count() filter (where page.ms > 20)",
            },
        },
        root,
    )


def expected(rows: list[Row]) -> list[tuple[Any, ...]]:
    """Return the groups by a plain loop."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["page"]["url"] != "/1":
            found.setdefault((row["who"]["shop"]["name"], row["who"]["id"]), []).append(row["page"])
    return [
        (
            *key,
            sum(page["ms"] or 0 for page in pages),
            len({page["url"] for page in pages}),
            sum((page["ms"] or 0) > 20 for page in pages),
        )
        for key, pages in sorted(found.items())
    ]


def groups(config: Config) -> list[tuple[Any, ...]]:
    query = "select name, id, spent, urls, slow from groups_live order by 1, 2"
    return query_tables(config, query, 100)[1]


def json_files(root: Path) -> Row:
    (root / "events").mkdir()
    (root / "events" / "a.json").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return {"kind": "files", "path": "events", "format": "json"}


def parquet_files(root: Path) -> Row:
    (root / "events").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS, ARROW), root / "events" / "a.parquet")
    return {"kind": "files", "path": "events", "format": "parquet"}


def delta_table(root: Path) -> Row:
    write_deltalake(root / "events", pa.Table.from_pylist(ROWS, ARROW))
    return {"kind": "delta", "path": "events"}


def change_feed(root: Path) -> Row:
    properties = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(root / "events", pa.Table.from_pylist(ROWS, ARROW), configuration=properties)
    return {"kind": "change_feed", "path": "events"}


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(json_files, marks=pytest.mark.slow),
        pytest.param(parquet_files, marks=pytest.mark.slow),
        delta_table,
        pytest.param(change_feed, marks=pytest.mark.slow),
    ],
)
def test_fields_of_files_and_tables(spark: SparkSession, tmp_path: Path, made: Callable[[Path], Row]) -> None:
    config = config_over(tmp_path, made(tmp_path))
    summary = run(spark, config, once=True)
    assert (summary.counts["input"], summary.counts["filtered"], summary.counts["dead"]) == (40, 10, 0)
    assert groups(config) == expected(ROWS)
    if made is change_feed:
        return
    report = forget(spark, config, ['["one","person-1"]'], wait="1 second")
    told = sum(row["who"] == {"id": "person-1", "shop": {"name": "one"}} for row in ROWS)
    assert report.counts["source_rows"] == told, "the source is searched by its fields"
    assert groups(config) == [row for row in expected(ROWS) if row[:2] != ("one", "person-1")]


@pytest.mark.parametrize("file_format", [pytest.param("json", marks=pytest.mark.slow), "avro"])
def test_fields_of_topics(spark: SparkSession, broker: Broker, tmp_path: Path, file_format: str) -> None:
    topic = Topic.create(broker)
    shop = record("Shop", name="string")
    page = record("Page", url="string", ms=["null", "long"])
    schema = record(who=record("Who", id="string", shop=shop), page=page, at="long")
    source: Row = {
        "kind": "kafka",
        "bootstrap_servers": broker.bootstrap_servers,
        "topic": topic.name,
        "format": file_format,
    }
    with serving(Registry()) as registry:
        if file_format == "avro":
            number = registry.add(f"{topic.name}-value", schema)
            topic.send({"value": written(number, schema, row)} for row in ROWS)
            source["schema_registry"] = registry.url
        else:
            topic.send({"value": json.dumps(row).encode()} for row in ROWS)
        config = config_over(tmp_path, source)
        summary = run(spark, config, once=True)
    assert (summary.counts["input"], summary.counts["filtered"], summary.counts["dead"]) == (40, 10, 0)
    assert groups(config) == expected(ROWS)
