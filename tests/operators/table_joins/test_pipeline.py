"""Joins of tables end to end, on Spark: of a table of another pipeline and a Delta table, beside SQL's joins."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import Config, load_config
from sessionlake.jobs.compact import compact
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.stream.run import run

ORDERS = """\
[source]
kind = "files"
path = "orders"
format = "json"

[event]
key = "order_id"
time = "at"
time_unit = "s"

[table]
columns = ["customer_id", "price"]
delete_when = "price < 0"
"""
JOINED = """\
[pipeline]
shards = {shards}

[table_join]
on = ["customer_id = id"]
type = "{type}"

[table_join.left]
name = "orders"
columns = ["order", "price"]
source = {{ kind = "results", of = "orders", rows = "changes" }}

[table_join.left.event]
columns = {{ order = "table_key" }}

[table_join.right]
name = "customers"
columns = ["name", "country"]
source = {{ kind = "change_feed", path = "customers" }}
event = {{}}
"""
Rows = list[tuple[Any, ...]]


class Shop:
    """Orders in files, customers in a Delta table, and the join of both."""

    def __init__(self, spark: SparkSession, root: Path, type_: str, seed: int = 0) -> None:
        self.spark, self.root, self.type = spark, root, type_
        self.random = random.Random(seed)
        (root / "project.toml").write_text("")
        (root / "orders.toml").write_text(ORDERS)
        (root / "orders").mkdir()
        self.files = 0
        customers = pa.table({"id": [0, 1, None], "name": ["ann", "bob", "eve"], "country": ["de", "fr", "it"]})
        properties = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(root / "customers", customers, configuration=properties)
        self.write(shards=2)

    def write(self, shards: int) -> None:
        (self.root / "joined.toml").write_text(JOINED.format(shards=shards, type=self.type))

    def order(self, rows: list[tuple[str, int | None, int]]) -> None:
        self.files += 1
        lines = (
            json.dumps({"order_id": o, "customer_id": c, "price": p, "at": 1_700_000_000 + self.files})
            for o, c, p in rows
        )
        (self.root / "orders" / f"{self.files}.json").write_text("".join(f"{line}\n" for line in lines))

    def some_orders(self) -> None:
        """Write orders, some of which are new, others move to another customer, and some are deleted."""
        some = range(12)
        picked = self.random.sample(some, 6)
        self.order([(f"o{n}", self.random.choice([0, 1, 2, 3, None]), self.random.randrange(-2, 9)) for n in picked])

    def change(self, statement: str) -> None:
        self.spark.sql(statement.format(customers=f"delta.`{self.root / 'customers'}`"))

    def step(self, *names: str) -> None:
        for name in names or ("orders", "joined"):
            run(self.spark, self.config(name), once=True)

    def config(self, name: str = "joined") -> Config:
        return load_config(self.root / f"{name}.toml")

    def expected(self) -> Rows:
        """Return the join of the present rows, by Spark's SQL."""
        self.spark.createDataFrame(
            query_tables(self.config("orders"), "select table_key, customer_id, price from table_live", 1000)[1],
            "order string, customer_id bigint, price bigint",
        ).createOrReplaceTempView("present_orders")
        found = self.spark.sql(
            f"select order, price, name, country from present_orders {self.type} join delta.`{self.root / 'customers'}` "
            "on customer_id = id"
        )
        return sorted((tuple(row) for row in found.collect()), key=repr)

    def found(self) -> Rows:
        text = "select orders_order, orders_price, customers_name, customers_country from joined_rows_live"
        return sorted(query_tables(self.config(), text, 1000)[1], key=repr)


CHANGES = [
    "update {customers} set country = 'es' where id = 0",
    "insert into {customers} values (2, 'cem', 'tr'), (3, 'dan', 'dk')",
    "update {customers} set id = 1 where id = 3",
    "delete from {customers} where id = 0",
    "insert into {customers} values (0, 'flo', 'at'), (null, 'gus', 'se')",
]


def test_a_join_is_that_of_sql(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path, "full")
    shop.some_orders()
    shop.step()
    assert shop.found() == shop.expected() != []


@pytest.mark.slow
@pytest.mark.parametrize("type_", ["inner", "left", "right", "full"])
def test_a_join_is_that_of_sql_after_each_batch(spark: SparkSession, tmp_path: Path, type_: str) -> None:
    """Meanwhile stores are lost, shards are cut again, and both tables are compacted."""
    shop = Shop(spark, tmp_path, type_)
    for number, change in enumerate(CHANGES):
        shop.some_orders()
        if number:
            shop.change(change)
        if number == 2:
            shutil.rmtree(shop.config().store_dir)
        if number == 3:
            shop.write(shards=3)
            compact(spark, shop.config())
        shop.step()
        assert shop.found() == shop.expected()
    compact(spark, shop.config())
    shop.step()
    assert shop.found() == shop.expected()
    columns, rows = find_rows(shop.config(), "0", None, None, 100)
    assert len(rows) == sum(name == "flo" for *_, name, _ in shop.expected())
    assert set(columns) >= {"joined_row_key", "left_position", "right_position", "customers_name", "changed_at"}
    frame = sessionlake.read(spark, shop.config())
    assert frame.count() == len(shop.expected())
    counts = query_tables(shop.config(), "select sum(input), sum(accepted), sum(dead), sum(filtered) from batches", 1)[
        1
    ]
    assert counts[0][0] == counts[0][1] > 0
    assert counts[0][2:] in ((0, 0), (0, None))
