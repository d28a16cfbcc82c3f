"""A table of a database, the records that Debezium sends of its changes, and the table of a pipeline that follows it."""

import json
import random
from dataclasses import dataclass, field
from typing import Any

from sessionlake.config.load import Config
from sessionlake.serve.queries import query_tables
from tests.sources.kafka_support import T0

CONFIG = """\
[pipeline]
name = "customers"
warehouse = "warehouse"
shards = 2

[source]
kind = "kafka"
bootstrap_servers = "{servers}"
topic = "{topic}"
format = "json"
envelope = "debezium"
max_offsets_per_batch = 60

[event]
key = "id"
time = "_source_time"

[table]
order = "offset"
columns = ["name", "notes", "spent"]
"""
UNSAID = "__debezium_unavailable_value"
Row = dict[str, Any]


def envelope(op: str, before: Row | None, after: Row | None, at: int = 0, **more: Any) -> Row:
    source = {
        "version": "3.0.0",
        "connector": "postgresql",
        "name": "pg",
        "ts_ms": (T0 + at) * 1000,
        "table": "customers",
    }
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": (T0 + at) * 1000 + 7, **more}


@dataclass
class Database:
    """A table of customers, and the records that a connector sends of its changes."""

    rng: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    sent: int = 0
    ignored: int = 0
    dead: int = 0

    def records(self, number: int) -> list[Row]:
        return [record for _ in range(number) for record in self.change()]

    def change(self) -> list[Row]:
        self.sent += 1
        key = self.rng.randrange(12)
        old, kind = self.rows.get(key), self.rng.random()
        if old is None or kind < 0.1:
            self.rows[key] = self.row(key)
            return [self.record(key, envelope(self.rng.choice("cr"), None, self.rows[key], self.sent))]
        if kind < 0.3:
            del self.rows[key]
            gone = envelope("d", {"id": key, "name": None, "notes": None, "spent": 0}, None, self.sent)
            self.ignored += 1
            return [self.record(key, gone), {"key": str(key), "value": None, "partition": key % 2}]
        if kind < 0.4:
            return self.noise()
        # An update that does not touch the long column does not say it.
        new = {**self.row(key), "notes": old["notes"]} if self.rng.random() < 0.5 else self.row(key)
        shown = {**new, "notes": UNSAID} if new["notes"] == old["notes"] else new
        self.rows[key] = new
        return [self.record(key, envelope("u", None, shown, self.sent))]

    def row(self, key: int) -> Row:
        notes = self.rng.choice([None, "", "x" * 100, f"note {self.sent}"])
        return {"id": key, "name": f"name {self.sent}", "notes": notes, "spent": self.rng.randrange(80) / 8}

    def record(self, key: int, value: Row) -> Row:
        if self.rng.random() < 0.5:
            value = {"schema": {"type": "struct", "name": "pg.public.customers.Envelope"}, "payload": value}
        return {"key": json.dumps({"id": key}), "value": json.dumps(value), "partition": key % 2}

    def noise(self) -> list[Row]:
        """Return a record that changes no row: a message of the database's own, or one that can't be taken."""
        if self.rng.random() < 0.3:
            self.ignored += 1
            return [{"value": json.dumps({"op": "m", "message": {"prefix": "p"}}), "partition": 0}]
        self.dead += 1
        values = [
            '{"op":"t","before":null,"after":null}',
            "{broken",
            '{"id":3,"name":"bare"}',
            '{"op":"x","after":{"id":1}}',
            "[1]",
        ]
        return [{"value": self.rng.choice(values), "partition": 1}]

    def live(self) -> list[tuple[Any, ...]]:
        return sorted((str(key), row["name"], row["notes"], row["spent"]) for key, row in self.rows.items())


def table(config: Config) -> list[tuple[Any, ...]]:
    rows = query_tables(config, "select table_key, name, notes, spent from table_live", 1000)[1]
    return sorted(tuple(row) for row in rows)


def assert_counted(config: Config, database: Database) -> None:
    ((filtered, dead, missing),) = query_tables(
        config, "select sum(filtered), sum(dead), sum(input - accepted - dead - filtered) from batches", 1
    )[1]
    assert (filtered, dead, missing) == (database.ignored, database.dead, 0)
