"""Pipelines that join two streams, for tests, and what they are to give, computed apart."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from sessionlake.config.load import Config, parse_config

Row = dict[str, Any]
_SECTIONS = (
    *("pipeline", "emit", "event", "source", "aggregates", "session", "window"),
    *("expire", "sink", "quality", "compact"),
)
Accepted = dict[str, list[tuple[Any, ...]]]


def join_raw(**changes: Any) -> dict[str, Any]:
    """Return a config of orders and shipments within 10 us of each other; `changes` are of [join], None removes a key.

    `left`, `right`, and what is no key of [join] are merged into their sections.
    """
    side: dict[str, Any] = {"event": {"time": "time_us", "time_unit": "us"}}
    files = {"kind": "files", "format": "json", "max_files_per_batch": 1}
    join: dict[str, Any] = {
        "on": ["id"],
        "grace": "5 us",
        "retention": "40 us",
        "left": {**side, "name": "orders", "size": "10 us", "columns": ["v"], "source": {**files, "path": "left"}},
        "right": {**side, "name": "shipments", "size": "10 us", "columns": ["w"], "source": {**files, "path": "right"}},
    }
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2},
        "join": join,
        "expire": {"max_share": 1.0},
    }
    for name, value in changes.items():
        if name in ("left", "right"):
            join[name] = _merged(join[name], value)
        elif name in _SECTIONS:
            raw[name] = {**raw.get(name, {}), **value}
        else:
            join[name] = value
    raw["join"] = {name: value for name, value in join.items() if value is not None}
    return raw


def join_config(root: Path, **changes: Any) -> Config:
    """Return it, with the directories of its sides made."""
    for name in ("left", "right"):
        (root / name).mkdir(exist_ok=True)
    return parse_config(join_raw(**changes), root)


def _merged(section: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in {**section, **changes}.items() if value is not None}


def write(root: Path, side: str, number: int, rows: Sequence[Row]) -> None:
    """Write a side's file of JSON lines; a row of the key `line` is a line as it stands."""
    lines = (row["line"] if "line" in row else json.dumps(row) for row in rows)
    file = root / side / f".{number}.json"
    file.write_text("".join(f"{line}\n" for line in lines))
    file.rename(root / side / f"{number}.json")


def messages(number: int) -> dict[str, list[Row]]:
    """Return a batch's rows of both sides: times that move on by 12 us a batch, some far behind, and one row that is no message."""
    rng = random.Random(number)

    def side(column: str) -> list[Row]:
        times = [200 + 12 * number + rng.choice([0, 2, 5, 9, 11, -3, -14, -25, -90]) for _ in range(30)]
        rows = [{"id": rng.choice("abc"), "time_us": t, column: number * 100 + i} for i, t in enumerate(times)]
        return [*rows, {"line": f'{{"id": "a", "{column}": {number}'}]

    return {"left": side("v"), "right": side("w")}


def read(config: Config, table: str) -> pa.Table:
    """Return a table's rows, read without Spark."""
    return pa.table(DeltaTable(f"{config.pipeline.warehouse}/{table}").to_pyarrow_table())


def pairs_of(config: Config, table: str = "join_changelog") -> list[tuple[int, int]]:
    """Return the pairs that were sent, each by the columns of its messages."""
    rows = read(config, table)
    return sorted(zip(rows["orders_v"].to_pylist(), rows["shipments_w"].to_pylist(), strict=True))


def accepted(batches: Sequence[dict[str, list[Row]]], grace: int = 5, retention: int = 40, size: int = 10) -> Accepted:
    """Return (id, time, column) of what is accepted of each side, and how many are late, beyond retention, or no message.

    In plain Python: the watermark of a batch is the least of the sides' greatest times before it.
    """
    found: Accepted = {"left": [], "right": [], "late": [], "dead": []}
    greatest = {"left": -(1 << 40), "right": -(1 << 40)}
    for batch in batches:
        watermark = min(greatest.values())
        for side, rows in batch.items():
            for row in rows:
                if "line" in row or row["time_us"] < watermark - retention:
                    found["dead"].append((side,))
                    continue
                message = (row["id"], row["time_us"], row.get("v", row.get("w")))
                is_late = row["time_us"] + size < watermark - grace
                found["late" if is_late else side].append(message)
        greatest = {side: max([before, *(m[1] for m in found[side])]) for side, before in greatest.items()}
    return found


def joined(found: Accepted, size: int = 10) -> list[tuple[int, int]]:
    """Return the pairs of accepted messages, by DuckDB."""
    schema = pa.schema([("id", pa.string()), ("t", pa.int64()), ("x", pa.int64())])
    with duckdb.connect() as db:
        for side in ("left", "right"):
            columns = list(zip(*found[side], strict=True)) or [[], [], []]
            db.register(f"{side}_rows", pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema))
        near = f"abs(l.t - r.t) <= {size}"
        return db.execute(
            f"select l.x, r.x from left_rows l join right_rows r on l.id = r.id and {near} order by all"
        ).fetchall()
