"""Events, the pipeline that `init --sql` makes of a query, and its run over the events on a shard of this process."""

import datetime as dt
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa

from sessionlake.config.file import parse_toml
from sessionlake.config.load import Config, parse_config
from sessionlake.local.rows import event_rows
from sessionlake.local.shards import LocalShards
from sessionlake.local.source import local_operator, local_tables
from sessionlake.local.stream import LocalStream
from sessionlake.operators.joins.section import JoinSection
from sessionlake.propose.query import Pipeline, pipeline_of
from sessionlake.propose.sample import Sample, read_sample
from sessionlake.sources.decoding.rows import Origin
from sessionlake.stream.control import MAX_ADVANCE
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.outputs import LATE, keyed_rows
from sessionlake.warehouse.changelog import changelog_of

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
CLOCK_US = int((START + dt.timedelta(days=2)).timestamp()) * 1_000_000
TYPES = {
    "tenant": pa.string(),
    "user_id": pa.int64(),
    "happened_at": pa.timestamp("us", "UTC"),
    "type": pa.string(),
    "price": pa.float64(),
    "quantity": pa.int64(),
    "buys": pa.bool_(),
    "event_id": pa.string(),
}
Row = dict[str, Any]


def events(seed: int, number: int = 240) -> list[Row]:
    """Return events at whole minutes of half a day, in any order. Prices are quarters, so that their sums are exact.

    Of every third seed they are at multiples of ten minutes, so that many have the same time.
    """
    draw, step = random.Random(seed), 10 if seed % 3 == 2 else 1
    found = []
    for n in range(number):
        kind = draw.choice(["buy", "buy", "view", "call", None])
        found.append(
            {
                "tenant": draw.choice(["acme", "it's", "ßig"]),
                "user_id": draw.choice([-7, 0, 3, 12345678901]),
                "happened_at": START + dt.timedelta(minutes=draw.randrange(0, 720, step)),
                "type": kind,
                "price": draw.choice([None, draw.randrange(1, 80) / 4]),
                "quantity": draw.choice([None, draw.randrange(-2, 6)]),
                "buys": draw.choice([None, kind == "buy"]),
                "event_id": f"e{n:04d}",
            }
        )
    return found


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema(list(TYPES.items())))


def write_sample(place: Path, rows: Sequence[Row]) -> Path:
    """Write rows as a file of JSON, with times as texts."""
    place.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps({**row, "happened_at": row["happened_at"].isoformat()}) + "\n" for row in rows)
    (place / "events.json").write_text(text)
    return place


@cache
def sample_of(seed: int) -> Sample:
    """Return the sample of `events`, read from JSON."""
    with TemporaryDirectory() as root:
        return read_sample(str(write_sample(Path(root) / "events", events(seed))), 1 << 24)


def made_of(query: str, *samples: Sample) -> Pipeline:
    return pipeline_of(query, "query.sql", samples, name="made", directory=Path("/nowhere"), output="made.toml")


def config_of(made: Pipeline) -> Config:
    return parse_config(parse_toml(made.text, "made.toml"), Path("/nowhere"))


def selected(made: Pipeline, *batches: Mapping[str, Sequence[Row]]) -> pa.Table | None:
    """Return the result of the SELECT over the live view, after the pipeline has run batches of rows by input; None if it has no rows."""
    config = config_of(made)
    of = changelog_of(config)
    operator = local_operator(config, dict.fromkeys(config.inputs, TYPES))
    changes = []
    # An outer join then closes all that is open, as `run --drain` does.
    closes = {MAX_ADVANCE: CLOCK_US} if isinstance(config.section, JoinSection) and config.section.outer else {}
    with _stream(config) as stream:
        for number, rows in enumerate((*batches, {})):
            given = [
                (name, event_rows(operator.columns(name), list(enumerate(some)), Origin(0, (number, 0, 0))))
                for name, some in rows.items()
            ]
            batch = stream.run(operator, CLOCK_US, given, counted=closes if number == len(batches) else None)
            assert not batch.tables(DEAD), batch.tables(DEAD)
            assert not batch.tables(LATE), batch.tables(LATE)
            tables = [keyed_rows(result.changes, of.key, of.key_columns) for result in batch.results]
            changes += [table.append_column("batch", pa.repeat(number, len(table))) for table in tables]
    if not changes:
        return None
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("changes", pa.concat_tables(changes))
        ranked = f"row_number() over (partition by {', '.join(of.identity)} order by batch desc)"
        connection.execute(f"create view {of.live} as select * from changes qualify {ranked} = 1 and op = 'upsert'")
        return connection.sql(made.select).to_arrow_table()


@contextmanager
def _stream(config: Config) -> Iterator[LocalStream[Any]]:
    with TemporaryDirectory() as root:
        shards: LocalShards[Any] = LocalShards(2, lambda operator, shard: operator.open_store(Path(root, str(shard))))
        stream: LocalStream[Any] = LocalStream(shards, local_tables(config))
        try:
            yield stream
        finally:
            stream.close()


def plain(table: pa.Table) -> list[str]:
    """Return rows as sorted texts: times without a zone's name, doubles to nine digits."""
    return sorted(repr([_plain(value) for value in row.values()]) for row in _rows(table))


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    # Columns of one name, as the query may have them, would be one key of a row.
    return table.rename_columns([f"{n}" for n in range(table.num_columns)]).to_pylist()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return [_plain(inner) for inner in value.values()]
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).replace(tzinfo=None).isoformat()
    return f"{value + 0.0:.9g}" if isinstance(value, float) else value
