"""Rows of the snapshot put in order: one partition of the frame for each file to be, by date and key."""

from collections import defaultdict
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionlake.jobs.compact.layout_texts import every, sql_type, stored_text, text_of, value_of
from sessionlake.jobs.compact.plan import MB, File, Share, shares
from sessionlake.warehouse.changelog import Changelog
from sessionlake.warehouse.spark_columns import columns
from sessionlake.warehouse.tables import Tables

ROW_BYTES = 64.0
"""Size of a row in a file, used if no file shows it."""
_NUMBER_OF_ROWS = "coalesce(cast(get_json_object(stats, '$.numRecords') as bigint), 0)"
_SAMPLED = 100
"""Keys looked at for each file that a date is cut into."""


def snapshot_files(tables: Tables, version: int | None = None) -> list[File]:
    """Return the snapshot's files."""
    of = tables.changelog

    def bound(kind: str) -> Column:
        return F.get_json_object("stats", f"$.{kind}.{of.date}")

    files = tables[of.snapshot].files(version)
    found = files.select(
        "path",
        F.col("size").alias("bytes"),
        F.expr(_NUMBER_OF_ROWS).alias("rows"),
        F.coalesce("deletionVector.cardinality", F.lit(0)).alias("deleted"),
        bound("minValues").alias("first"),
        bound("maxValues").alias("last"),
    )

    def bounds(*told: str | None) -> list[str]:
        return [other if text is None else stored_text(of, text) for text, other in zip(told, every(of), strict=True)]

    return [File(*row[:4], *bounds(row.first, row.last)) for row in found.collect()]


def row_bytes(tables: Tables, files: list[File]) -> float:
    """Return the size of a row in some files of the snapshot; if they have none, that of a change, which has nearly the same columns."""
    held, rows = sum(file.bytes for file in files), sum(file.rows for file in files)
    if not rows:
        # In files of a few changes most bytes are none of a change's.
        large = tables[tables.changelog.changes].files().where(F.col("size") >= MB)
        held, rows = large.selectExpr("sum(size)", f"sum({_NUMBER_OF_ROWS})").collect()[0]
    return held / rows if rows else ROW_BYTES


def rows_by_date(of: Changelog, files: list[File], stored: DataFrame | None) -> dict[str, int]:
    """Return the number of rows by date in some files: from the log if each file has a single date, else counted in `stored`."""
    found: dict[str, int] = defaultdict(int)
    if stored is None or all(file.first == file.last and file.rows for file in files):
        for file in files:
            found[file.first] += file.rows - file.deleted
    else:
        for row in stored.groupBy(of.date).count().collect():
            found[text_of(row[of.date])] = row["count"]
    return dict(found)


def in_order(
    of: Changelog, rows: DataFrame, sample: DataFrame, counts: Mapping[str, int], row_size: float, file_bytes: int
) -> DataFrame:
    """Return rows of the snapshot in partitions that each make one file, see `shares`; in order of date and key.

    `counts` are the rows of each date, roughly; `sample` has dates and keys as `rows` has them, and is cheaper to read.
    """
    spark = rows.sparkSession
    divided = shares(counts, row_size, file_bytes, spark.sparkContext.defaultParallelism)
    if len(divided) > 1 or (divided and divided[0].files > 1):
        cuts = _cuts(of, sample, counts, divided)
        plan, first = [], 0
        for share in divided:
            plan += [(value_of(day), first, cuts.get(day, [])) for day in share.dates]
            first += share.files
        table = spark.createDataFrame(plan, f"{of.date} {sql_type(of)}, _first int, _cuts array<string>")
        placed = rows.join(F.broadcast(table), of.date, "left")
        # A date that is not in the plan, which none should be, is in the first file.
        number = F.coalesce(F.col("_first") + F.col("_passed"), F.lit(0))
        numbered = _with_passed(placed, of.key, max(map(len, cuts.values()), default=0)).withColumn("_file", number)
        rows = numbered.repartitionById(first, "_file").select(*columns(rows.columns))
    else:
        rows = rows.coalesce(1)
    return rows.sortWithinPartitions(of.date, *of.identity)


def _with_passed(rows: DataFrame, key: str, most: int) -> DataFrame:
    """Return rows with `_passed`: how many of their `_cuts`, which ascend and are at most so many, are not greater than their key.

    It is a binary search, a column a step, which Spark compiles. A lambda over all cuts is not compiled, and took six times as
    long with 20 cuts, and forty times with 200 (docs/decisions/0007-compaction.md).
    """
    rows = rows.withColumn("_passed", F.lit(0))
    for bit in reversed(range(most.bit_length())):
        step = 1 << bit
        passes = f"get(_cuts, _passed + {step - 1}) <= {key}"  # null beyond the last cut
        rows = rows.withColumn("_passed", F.expr(f"_passed + if({passes}, {step}, 0)"))
    return rows


def _cuts(of: Changelog, sample: DataFrame, counts: Mapping[str, int], divided: list[Share]) -> dict[str, list[str]]:
    """Return the keys at which dates of several files are cut, by date: each begins a file."""
    files = {share.dates[0]: share.files for share in divided if share.files > 1}
    if not files:
        return {}
    fraction = min(1.0, _SAMPLED * sum(files.values()) / max(1, sum(counts[day] for day in files)))
    keys: dict[str, list[str]] = defaultdict(list)
    some = sample.where(F.col(of.date).isin([value_of(day) for day in files])).sample(fraction, seed=1)
    for row in some.select(of.date, of.key).collect():
        keys[text_of(row[0])].append(row[1])
    return {
        day: sorted({found[len(found) * n // files[day]] for n in range(1, files[day])})
        for day, found in ((day, sorted(some)) for day, some in keys.items())
    }
