"""Positions are the plain order of a source's accepted rows, whichever tasks read them, and a rerun gives the same ones."""

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.engine import exchange
from sessionlake.engine.operator import BatchContext, Counted, Everywhere, Keyed, Split, add_stats
from sessionlake.engine.split import SplitTask
from sessionlake.errors import PipelineStateError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import NUMBER, PARTS, PATH, FileDecoder
from sessionlake.sources.decoding.kafka_records import RecordDecoder, Topic
from sessionlake.sources.decoding.rows import Decoder
from sessionlake.sources.decoding.tables import BLOCK, FILE, TableDecoder
from sessionlake.sources.delta import DeltaSource
from sessionlake.stream.positions import CHUNK, PARTITION, ROW, Numbering, accepted_rows, chunk_of, counted
from sessionlake.warehouse.tables import Tables
from tests.support import examples, make_config

COLUMNS = EventColumns("k", "t", "us", None, ("n",), {"k": pa.string(), "t": pa.int64(), "n": pa.int64()}, ordered=True)
Task = list[pa.Table]
"""The Arrow tables of a map task."""


@dataclass(frozen=True)
class Numbered:
    """Sends the number `n` of each accepted row to the shard of its key; an odd key is refused."""

    decoder: Decoder
    ticks: bool = False

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        decoded = self.decoder.decode_in_order(rows, context.files.get("events", {}), context.part)
        for number, found in enumerate(decoded):
            good = np.ones(found.table.num_rows, bool)
            if found.error is not None:
                good = found.error.is_null().to_numpy(zero_copy_only=False)
            kept = found.table.filter(pa.array(good & np.array([k is not None for k in found.table["k"].to_pylist()])))
            chunk = chunk_of(context, number)
            yield from accepted_rows("events", found, kept.num_rows, chunk)
            sent = {CHUNK: np.full(kept.num_rows, chunk), ROW: np.arange(kept.num_rows), "n": kept["n"]}
            yield Keyed("rows", pa.array(kept["k"].to_pylist(), pa.string()), pa.table(sent))


def numbered(
    decoder: Decoder, tasks: Sequence[Task], files: dict[str, int], state: dict[str, Any], shards: int = 3
) -> tuple[dict[int, int], dict[int, int], dict[str, Any]]:
    """Return position and arrival by `n` of a batch of map tasks, and the state after it."""
    wire: list[pa.RecordBatch] = []
    stats: dict[str, int] = {}
    operator = Numbered(decoder)
    for number, tables in enumerate(tasks):
        context = BatchContext(7, "c", state, files={"events": files}, task=number)
        task = _Task(operator, replace(context), (), shards, number)
        wire += task.run(batch for table in tables for batch in table.to_batches())
    position, arrival = {}, {}
    for inputs in exchange.read_wire(wire).values():
        for report in exchange.reports_among(inputs):
            add_stats(stats, json.loads(report)["stats"])
        numbering = Numbering.of(inputs, state, "events")
        if "rows" in inputs:
            rows = inputs["rows"]
            at = [rows[name].to_numpy() for name in (CHUNK, ROW)]
            position.update(zip(rows["n"].to_pylist(), numbering.positions(*at).tolist(), strict=True))
            arrival.update(zip(rows["n"].to_pylist(), numbering.arrivals(*at).tolist(), strict=True))
        after = counted(state, {})["positions"].get("events", {})
        assert numbering.before == {int(p): n for p, n in after.items()}
    return position, arrival, counted(state, stats)


@dataclass(frozen=True)
class _Task(SplitTask):
    """A map task whose number is given, as Spark gives it."""

    number: int = 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sessionlake.engine.split as module

        before = module._number_of_this
        module._number_of_this = lambda: self.number
        try:
            yield from super().run(batches)
        finally:
            module._number_of_this = before


def lines_of(numbers: Sequence[int], bad: set[int]) -> list[dict[str, Any]]:
    return [{"k": None if n in bad else f"k{n % 5}", "t": n, "n": n} for n in numbers]


def written(directory: Path, name: str, format_: str, rows: list[dict[str, Any]]) -> str:
    path = directory / f"{name}.{format_}"
    if format_ == "json":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif format_ == "csv":
        texts = (",".join("" if v is None else str(v) for v in row.values()) for row in rows)
        path.write_text("k,t,n\n" + "".join(text + "\n" for text in texts))
    else:
        schema = pa.schema([("k", pa.string()), ("t", pa.int64()), ("n", pa.int64())])
        with pq.ParquetWriter(path, schema) as writer:
            for first in range(0, len(rows), 7):
                writer.write_table(pa.Table.from_pylist(rows[first : first + 7], schema=schema))
    return str(path)


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
@examples(25)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    parts=st.integers(1, 4),
    seed=st.integers(0, 1 << 30),
    data=st.data(),
)
def test_files(
    tmp_path_factory: pytest.TempPathFactory, format_: str, sizes: list[int], parts: int, seed: int, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("files")
    total = sum(sizes)
    bad = data.draw(st.sets(st.integers(0, max(0, total - 1)), max_size=total))
    numbers = iter(range(total))
    paths = [
        written(directory, f"f{9 - i}", format_, lines_of(list(itertools.islice(numbers, size)), bad))
        for i, size in enumerate(sizes)
    ]
    parts = 1 if format_ == "csv" else parts
    rows = [{PATH: path, NUMBER: part, PARTS: parts} for path in paths for part in range(parts)]
    random = Random(seed)
    decoder = FileDecoder(COLUMNS, format_, str(directory))  # type: ignore[arg-type]
    good = [n for n in range(total) if n not in bad]
    found = []
    for _ in range(2):  # a rerun with other tasks
        random.shuffle(rows)
        cut = random.randint(0, len(rows))
        tasks = [[pa.Table.from_pylist(some)] for some in (rows[:cut], rows[cut:]) if some]
        ranks = {path: rank for rank, path in enumerate(paths)}
        found.append(numbered(decoder, tasks, ranks, {"positions": {"events": {"0": 10}}}))
    position, arrival, state = found[0]
    assert found[0] == found[1]
    assert position == arrival == {n: 11 + place for place, n in enumerate(good)}
    assert state == {"positions": {"events": {"0": 10 + len(good)}}}


@examples(40)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=60), st.integers(0, 1 << 30))
def test_a_topic_of_several_partitions_in_one_table(records: list[tuple[int, bool]], seed: int) -> None:
    offsets = [sum(p == partition for p, _ in records[:i]) for i, (partition, _) in enumerate(records)]
    values = [json.dumps(row).encode() for row in lines_of(range(len(records)), set())]
    table = pa.table(
        {
            "value": pa.array([v if good else None for v, (_, good) in zip(values, records, strict=True)], pa.binary()),
            "partition": pa.array([p for p, _ in records], pa.int32()),
            # A topic's offsets have gaps; positions have none.
            "offset": pa.array([3 * offset for offset in offsets], pa.int64()),
            "timestamp": pa.array([0] * len(records), pa.timestamp("us", "UTC")),
        }
    )
    before = {"0": 5, "1": 1}
    state: dict[str, Any] = {"positions": {"events": before}}
    expected, place = {}, {p: before.get(str(p), 0) for p in range(4)}
    for n, (partition, good) in enumerate(records):
        if good:
            place[partition] += 1
            expected[n] = partition * PARTITION + place[partition]
    cut = Random(seed).randint(0, len(records))
    decoder = RecordDecoder(COLUMNS, Topic("t", avro=False))
    whole = numbered(decoder, [[table]], {}, state)
    tasks = [[table.slice(cut)], [table.slice(0, cut // 2), table.slice(cut // 2, cut - cut // 2)]]
    assert whole == numbered(decoder, tasks, {}, state, shards=2)
    position, arrival, after = whole
    assert position == expected
    assert arrival == {n: 7 + i for i, n in enumerate(sorted(expected, key=expected.__getitem__))}
    assert after["positions"]["events"] == {str(p): n for p, n in place.items() if n}


def test_rows_of_a_table_that_share_arrow_tables_and_tasks() -> None:
    def rows(file: str, block: int, first: int, count: int) -> pa.Table:
        table = pa.Table.from_pylist(lines_of(range(first, first + count), {3}), schema=COLUMNS.schema)
        table = table.append_column(FILE, pa.repeat(file, count))
        return table.append_column(BLOCK, pa.repeat(pa.scalar(block, pa.int64()), count))

    a, b, c, d = rows("f", 0, 0, 4), rows("f", 500, 4, 3), rows("g", 0, 7, 2), rows("h", 0, 9, 3)
    tasks = [
        [pa.concat_tables([b, d.slice(0, 1)]).combine_chunks(), d.slice(1)],
        [pa.concat_tables([c, a]).combine_chunks()],
    ]
    position, _, _ = numbered(TableDecoder(COLUMNS, None), tasks, {"f": 0, "g": 1, "h": 2}, {})
    assert position == {n: place for place, n in enumerate([0, 1, 2, *range(4, 12)], start=1)}


def test_a_file_that_was_not_planned_is_named() -> None:
    decoder = FileDecoder(COLUMNS, "json", "/")
    with pytest.raises(PipelineStateError, match=r"/x\.json.*rebuild"):
        list(decoder.decode_in_order(pa.table({PATH: ["/x.json"]}), {}, 0))


def test_rows_without_an_origin_are_not_numbered(tmp_path: Path) -> None:
    path = written(tmp_path, "f", "json", lines_of([1], set()))
    (rows,) = FileDecoder(COLUMNS, "json", str(tmp_path)).decode(pa.table({PATH: [path]}))
    with pytest.raises(ValueError, match="origin"):
        list(accepted_rows("events", rows, 1, 0))


def test_inputs_are_numbered_apart(tmp_path: Path) -> None:
    path = written(tmp_path, "f", "json", lines_of([1, 2], set()))
    decoded = FileDecoder(COLUMNS, "json", str(tmp_path)).decode_in_order(pa.table({PATH: [path]}), {path: 0}, 0)
    (rows,) = decoded
    pieces = [piece for name in ("left", "right") for piece in accepted_rows(name, rows, 2, 0)]
    told = pa.concat_tables([piece.rows for piece in pieces if isinstance(piece, Everywhere)])
    stats: dict[str, int] = {}
    for piece in pieces:
        if isinstance(piece, Counted):
            add_stats(stats, piece.stats)
    state = counted({"positions": {"right": {"0": 4}}}, stats)
    assert state == {"positions": {"right": {"0": 6}, "left": {"0": 2}}}
    right = Numbering.of({"chunks": told}, {"positions": {"right": {"0": 4}}}, "right")
    assert right.positions(np.zeros(2, np.int64), np.arange(2)).tolist() == [5, 6]
    assert right.after == {0: 6}


@pytest.mark.parametrize("large", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_delta_table(spark: SparkSession, tmp_path: Path, large: bool) -> None:  # noqa: FBT001
    """Files of one version, and large ones that several tasks read, in the order of the table's log and of each file."""
    source = tmp_path / "source"
    settings = {"parquet.block.size": "20000", "spark.sql.files.maxPartitionBytes": "60000"}
    for name, value in settings.items():
        spark.conf.set(name, value)

    def add(first: int, count: int, files: int) -> None:
        rows = spark.range(first, first + count, 1, files).selectExpr("'k' as k", "id as t", "id as n")
        rows.write.format("delta").mode("append").save(str(source))

    count = 60_000 if large else 40
    add(0, count, 2)
    add(count, 10, 1)
    config = make_config(tmp_path, source={"kind": "delta", "path": "source", "format": None, "max_files_per_batch": 2})
    stream = DeltaSource(spark, config).stream(COLUMNS)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    state: dict[str, Any] = {}
    found: dict[int, int] = {}
    blocks: set[tuple[str, int]] = set()

    def run(rows: DataFrame, batch_id: int) -> None:
        files = dict(ranked.ranks(batch_id))
        located = rows.withColumn("p", F.spark_partition_id())
        read = located.toArrow()
        blocks.update(zip(read[FILE].to_pylist(), read[BLOCK].to_pylist(), strict=True))
        number = read["p"].to_numpy()
        tasks = []
        for task in np.unique(number):
            table = read.filter(pa.array(number == task)).drop_columns(["p"]).combine_chunks()
            tasks.append([table.slice(first, 1000) for first in range(0, table.num_rows, 1000)])
        position, _, after = numbered(TableDecoder(COLUMNS, None), tasks, files, dict(state))
        found.update(position)
        state.update(after)

    ranked = DeltaSource(spark, config).ranked(tables)
    try:
        # A query's file of offsets has a line for each of its streams; that of events is the first.
        writer = stream.writeStream.foreachBatch(run).option("checkpointLocation", config.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        add(count + 10, 10, 1)
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        for name in settings:
            spark.conf.unset(name)
    # Within a version the log's order of files is what counts; the two of the first hold a half each.
    half = count // 2
    order = sorted(found, key=found.__getitem__)
    assert [found[n] for n in order] == list(range(1, count + 21))
    first, second = order[:half], order[half:count]
    assert sorted([first, second]) == [list(range(half)), list(range(half, count))]
    assert order[count:] == list(range(count, count + 20))
    assert (len(blocks) > 4) == large  # several tasks have read one file
