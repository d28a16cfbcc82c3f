"""The proof that nothing of a key is left: rows, data files, logs and local stores, each looked through for it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader
from pyspark.sql import functions as F

from sessionlake.column_names import ELEMENT, is_element, is_within, parts_of
from sessionlake.config.source import SourceSection
from sessionlake.engine.pending import FORGET
from sessionlake.errors import first_line
from sessionlake.jobs.forget.documents import find_documents
from sessionlake.jobs.forget.files import find_files
from sessionlake.jobs.forget.keys import keys_in_front, matching
from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.forget.logs import find_in_logs
from sessionlake.jobs.forget.lookups import find_in_versions
from sessionlake.jobs.forget.stores import elsewhere, find_in_stores
from sessionlake.jobs.publish.database import rows_with
from sessionlake.sources.decoding.documents import element_texts
from sessionlake.sources.decoding.files import is_local, local_path
from sessionlake.sources.files import path_for_spark
from sessionlake.warehouse.spark_columns import map_in_arrow, source_column

SEARCHED = ("tables", "data files", "logs", "stores", "pending files", "lookups", "validation results and data docs")


@dataclass(frozen=True)
class Proof:
    """The rows, files or traces that still hold a key, by place: (name, number). Places without any are left out."""

    places: dict[str, int]
    source_rows: int
    """Rows of the source, which is the user's: they stay."""
    unsearched: list[str]
    """Places that may hold a key but can't be searched from this machine, for people."""
    limits: list[str]
    """Places that are not searched by design, for people."""
    keys: list[str] = field(default_factory=list)
    """A line about each key, for people."""

    @property
    def clean(self) -> bool:
        """Nothing is left, as far as anybody keeps anything."""
        return not self.places and not self.unsearched

    @property
    def found(self) -> int:
        """How much holds a key, all places together."""
        return sum(self.places.values())

    def lines(self) -> list[str]:
        """Return the proof for people."""
        lines = [*self.keys, *(f"{place}: {count:,}" for place, count in self.places.items())]
        if self.source_rows:
            lines.append(f"source: {self.source_rows:,} rows with a key; they are yours, and are not removed")
        lines += [*self.limits, *(f"unsearched: {place}" for place in self.unsearched)]
        return lines if self.places else [*lines, "no key in " + ", ".join(SEARCHED)]


def prove(lake: Lake, hosts: Iterable[str], documents: Path, *, alone: bool) -> Proof:
    """Look for the keys everywhere; `hosts` are the hosts that had shards, `documents` is the directory of `quality`."""
    places: dict[str, int] = {f"rows of {name}": sum(files.values()) for name, files in lake.files().items()}
    for name, files in find_files(lake, alone=alone).items():
        places[f"data files of {name}, referenced"] = len(files.live)
        places[f"data files of {name}, removed"] = len(files.removed)
        places[f"data files of {name}, in no log"] = len(files.unknown)
        places[f"data files of {name}, unreadable"] = len(files.broken)
    for name, found in find_in_logs(lake, alone=alone).items():
        places[f"log files of {name}"] = len(found)
    stores = find_in_stores(lake.config, lake.keys)
    places["local stores still to be removed"] = sum(path.suffix == FORGET for path in stores)
    places["files of local stores"] = len(stores) - places["local stores still to be removed"]
    places["versions of tables that are looked up"] = len(find_in_versions(lake))
    places[f"validation results and data docs in {documents}"] = len(find_documents(documents, lake.keys))
    if lake.config.sink.postgres is not None:
        columns = (lake.tables.changelog.key, *keys_in_front(lake.config))
        places[f"rows of {lake.config.sink.postgres.table} in PostgreSQL"] = sum(
            rows_with(lake.config, column, lake.keys.values) for column in columns
        )
    rows, limits = 0, []
    for name, side in lake.config.inputs.items():
        held, limit = _searched(lake, name, side.source)
        rows += held
        limits += [] if limit is None else [f"{side.source.AT}: {limit}"]
    limits += [
        f"dead letters: of {name.capitalize()} their rows are base64, in which a key is not found; look at them by hand"
        for name in ("avro", "protobuf")
        if name in lake.formats
    ]
    unread = lake.unread()
    if unread:
        limits.append(
            f"dead letters: {unread:,} rows whose key can't be read; they were searched for the keys as words"
        )
    holding = {place: count for place, count in places.items() if count}
    return Proof(holding, rows, [*elsewhere(lake.config, hosts), *by_partition(lake)], limits)


def by_partition(lake: Lake) -> list[str]:
    """Return, for people, the tables whose removed files can't be searched: the files lack the partition columns."""
    found = []
    for name, holders in lake.holders.items():
        partitions = lake.tables[name].partitioned_by()
        found += [
            f"data files of {name}: the table is partitioned by {holder.column}, so the files' paths name keys; write it again without partitions, and remove this one"
            for holder in holders
            if holder.column in partitions
        ]
    return found


def _searched(lake: Lake, name: str, source: SourceSection) -> tuple[int, str | None]:
    """Return how many rows of an input's source have a key, and why they were not searched if that is so."""
    if source.entry.has_topic:
        return 0, "a topic is not searched; its records leave it with its own retention"
    side = lake.config.inputs[name]
    made = {column.lower() for column in (*side.event.columns, *(name for of in side.lookup for name in of.names))}
    absent = next((column for column in lake.config.keys[name] if column.lower() in made or is_element(column)), None)
    if absent is not None:
        return 0, f"{source.path!r} was not searched: its rows don't have {absent!r}, which is computed or looked up"
    try:
        return _source_rows(lake, name, source), None
    except PySparkException as error:
        return 0, f"{source.path!r} can't be read, and was not searched ({first_line(error)})"


def _source_rows(lake: Lake, name: str, source: SourceSection) -> int:
    """Count the rows of an input's source with a key: by column if files have columns, else by text."""
    spark = lake.tables.spark
    is_table = source.entry.is_table
    place = source.path if is_table else path_for_spark(spark, lake.config.inputs[name])
    if is_table and source.path in (lake.tables[name].uri for name in lake.holders):
        return 0
    if is_table or source.format == "parquet":
        reader = spark.read.format("delta" if is_table else "parquet")
        rows = (reader if is_table else reader.option("recursiveFileLookup", "true")).load(place)
        rows, column_of = _exploded(rows, lake.config.inputs[name].event.exploded)
        parts = [column_of(column).cast("string") for column in lake.config.keys[name]] or [F.lit("")]
        found = rows.select(F.array(*parts).alias("parts"))
        return matching(found.alias("t"), lake.frame, F.expr("t.parts = k.parts")).count()
    of_files = spark.read.option("recursiveFileLookup", "true")
    # A document may be a single line of gigabytes, which Spark would read as one text.
    texts = _elements(of_files, source, place) if source.records else of_files.text(place)
    return matching(texts.alias("t"), lake.frame, F.expr("t.value rlike k.value")).count()


def _exploded(rows: DataFrame, path: str | None) -> tuple[DataFrame, Callable[[str], Column]]:
    """Return rows with a row for each element of the list that is exploded, if any, and the column for a name."""
    if path is None:
        return rows, source_column
    fields = len(parts_of(path))

    def column_of(name: str) -> Column:
        if not is_within(name, path):
            return source_column(name)
        return reduce(getitem, parts_of(name)[fields:], F.col(ELEMENT))

    return rows.select("*", F.explode_outer(source_column(path)).alias(ELEMENT)), column_of


def _elements(files: DataFrameReader, source: SourceSection, place: str) -> DataFrame:
    """Return the texts of the elements of documents."""
    layout, limit, local = source.layout, source.max_line_bytes, is_local(source.path)

    def texts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for path, *content in (row.values() for batch in batches for row in batch.to_pylist()):
            for values in element_texts(content[0] if content else local_path(path), path, layout, limit):
                yield pa.record_batch([values], ["value"])

    found = files.format("binaryFile").load(place).select("path", *([] if local else ["content"]))
    return map_in_arrow(found, texts, "value string")
