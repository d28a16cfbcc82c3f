"""An event for each element on Spark (rule 463): what every job makes of them is what it makes of rows that are flattened by hand."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli_w
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from infra.kafka.broker import Broker
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.forget.job import forget
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.rebuild import apply_switch, rebuild
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from tests.sources.kafka_support import Topic
from tests.sources.registry_support import Registry, record, serving, written

Row = dict[str, Any]
HOUR = 3600


def config_over(root: Path, source: Row, *, archive: bool | str, **event: Any) -> Config:
    settings = (
        {
            "pipeline": {"name": "sold", "warehouse": "warehouse", "store": "store", "shards": 2, "archive": archive},
            "source": source,
            "event": {
                "key": "cart.items.sku", "time": "at", "time_unit": "s", "id": "order", "explode": "cart.items",
                "unique_for": "10 hours", **event,
            },
            "session": {"gap": "10 minutes", "grace": "1 hour", "retention": "10 hours"},
            "aggregates": {"n": "sum(cart.items.n)", "users": "count_distinct(user)"},
        }
    )  # fmt: skip
    (root / "sold.toml").write_text(tomli_w.dumps(settings))
    return load_config(root / "sold.toml")


def order(name: str, user: str, at: int, *items: Row | None) -> Row:
    return {"order": name, "user": user, "at": at, "cart": {"items": [*items]}}


def write(root: Path, name: str, *rows: Row) -> None:
    (root / "events").mkdir(exist_ok=True)
    (root / "events" / f"{name}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def sessions(config: Config) -> list[tuple[Any, ...]]:
    return query_tables(
        config, "select session_key, event_count, n, users from sessions_live order by session_key, session_start", 100
    )[1]


A, B = {"sku": "a", "n": 2, "note": "of a"}, {"sku": "b", "n": 1, "note": "of b"}


@pytest.mark.slow
@pytest.mark.parametrize("archive", [True, "all"])
def test_jobs_know_elements(spark: SparkSession, tmp_path: Path, *, archive: bool | str) -> None:
    files = {"kind": "files", "path": "events", "format": "json", "types": {"cart.items.n": "long"}}
    config = config_over(tmp_path, files, archive=archive)
    bad = {"sku": "c", "n": "many", "note": "of c"}
    write(
        tmp_path,
        "1",
        order("o1", "ann", 10 * HOUR, A, B),
        order("o1", "ann", 10 * HOUR, A, B),
        order("o2", "bob", 10 * HOUR),
    )
    write(tmp_path, "2", order("o3", "cy", 10 * HOUR + 60, A, bad, None))
    counts = run(spark, config, once=True).counts
    told = {name: counts[name] for name in ("input", "accepted", "dead", "filtered", "duplicate")}
    assert told == {"input": 8, "accepted": 3, "dead": 2, "filtered": 1, "duplicate": 2}
    assert sessions(config) == [("a", 2, 4, 2), ("b", 1, 1, 1)]
    write(tmp_path, "3", order("o4", "di", 15 * HOUR, A))
    run(spark, config, once=True)
    write(tmp_path, "4", order("o5", "ed", 9 * HOUR, A, B))
    assert run(spark, config, once=True).counts["late"] == 2
    letters = (
        query_tables(config, "select raw from dead_letters", 10)[1]
        + query_tables(config, "select raw from late_events", 10)[1]
    )
    assert len(letters) == 4
    for (text,) in letters:
        assert sum(f"of {name}" in text for name in "abc") <= 1, "a text has no other element"

    assert reprocess_late(spark, config).counts["late_events"] == 2
    assert apply_corrections(spark, config)
    assert sessions(config) == [("a", 1, 2, 1), ("a", 2, 4, 2), ("a", 1, 2, 1), ("b", 1, 1, 1), ("b", 1, 1, 1)]
    report = redeem(spark, config, reasons=["wrong type", "null key"])
    assert (report.counts["dead_letters"], report.counts["refused"]) == (2, 2)
    assert backfill(spark, config, from_us=0, to_us=20 * HOUR * 1_000_000).counts["corrections"] == 0
    forget(spark, config, ["b"], wait="1 second")
    assert sessions(config) == [("a", 1, 2, 1), ("a", 2, 4, 2), ("a", 1, 2, 1)]
    assert read_status(config).reconciles
    left = query_tables(config, "select count(*) from late_events where raw like '%of b%'", 1)[1]
    assert left == [(0,)]
    _, switch = rebuild(spark, tmp_path / "sold.toml", "other", from_archive=True)
    apply_switch(tmp_path / "sold.toml", switch)
    assert sessions(load_config(tmp_path / "sold.toml")) == sessions(config)


ROWS: list[Row] = [
    {
        "user": f"user-{number % 3}",
        "at": 1_700_000_000 + number,
        "cart": None
        if number % 7 == 0
        else {"items": [{"sku": f"s{n % 4}", "n": number + n} for n in range(number % 4)]},
    }
    for number in range(30)
]
ARROW = pa.schema(
    [
        ("user", pa.string()),
        ("at", pa.int64()),
        (
            "cart",
            pa.struct(
                [("items", pa.list_(pa.struct([("n", pa.int32()), ("more", pa.string()), ("sku", pa.string())])))]
            ),
        ),
    ]
)


def expected(without: str = "") -> list[tuple[Any, ...]]:
    """Return the groups by a plain loop."""
    found: dict[str, list[int]] = {}
    for row in ROWS:
        for item in ((row["user"] != without and row["cart"]) or {"items": []})["items"]:
            found.setdefault(item["sku"], []).append(item["n"])
    return [(sku, len(found[sku]), sum(found[sku])) for sku in sorted(found)]


def groups(config: Config) -> list[tuple[Any, ...]]:
    return query_tables(config, "select group_key, event_count, n from groups_live order by group_key", 100)[1]


def grouped(root: Path, source: Row) -> Config:
    settings = {
        "pipeline": {"name": "sold", "warehouse": "warehouse", "store": "store", "shards": 2},
        "source": source,
        "event": {"key": "cart.items.sku", "time": "at", "time_unit": "s", "explode": "cart.items"},
        "group": {},
        "aggregates": {"n": "sum(cart.items.n)"},
    }
    (root / "sold.toml").write_text(tomli_w.dumps(settings))
    return load_config(root / "sold.toml")


@pytest.mark.parametrize(
    "kind",
    [pytest.param("parquet", marks=pytest.mark.slow), "delta", pytest.param("change_feed", marks=pytest.mark.slow)],
)
def test_files_and_tables(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    rows = pa.Table.from_pylist(ROWS, ARROW)
    source: Row = {"kind": kind, "path": "events"}
    if kind == "parquet":
        (tmp_path / "events").mkdir()
        pq.write_table(rows, tmp_path / "events" / "a.parquet")
        source |= {"kind": "files", "format": "parquet"}
    else:
        properties = {"delta.enableChangeDataFeed": "true"} if kind == "change_feed" else {}
        write_deltalake(tmp_path / "events", rows, configuration=properties)
    config = grouped(tmp_path, source)
    counts = run(spark, config, once=True).counts
    without = sum(not (row["cart"] or {"items": []})["items"] for row in ROWS)
    assert (counts["filtered"], counts["dead"]) == (without, 0)
    assert groups(config) == expected()
    if kind != "change_feed":
        found = forget(spark, config, ["s1"], wait="1 second").counts["source_rows"]
        assert found == next(count for sku, count, _ in expected() if sku == "s1"), "the source is searched by elements"
    else:
        DeltaTable(tmp_path / "events").delete("user = 'user-1'")
        run(spark, config, once=True)
        assert groups(config) == expected(without="user-1")


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["json", "avro"])
def test_topics(spark: SparkSession, broker: Broker, tmp_path: Path, file_format: str) -> None:
    topic = Topic.create(broker)
    item = record("Item", n="long", more=["null", "string"], sku="string")
    cart = record("Cart", items={"type": "array", "items": item})
    schema = record(user="string", at="long", cart=["null", cart])
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
        config = grouped(tmp_path, source)
        counts = run(spark, config, once=True).counts
    assert counts["dead"] == 0
    assert groups(config) == expected()
