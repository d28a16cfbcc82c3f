"""The proof that nothing of a key is left: rows, data files, logs and local stores, each looked through for it."""

from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sessionlake.errors import first_line
from sessionlake.jobs.forget.files import find_files
from sessionlake.jobs.forget.keys import matching
from sessionlake.jobs.forget.lake import Lake
from sessionlake.jobs.forget.logs import find_in_logs
from sessionlake.jobs.forget.stores import find_in_stores


@dataclass(frozen=True)
class Proof:
    """What holds a key, by place: (what, how many), only where there is any."""

    places: dict[str, int]
    source_rows: int
    """Rows of the source, which is the user's: they stay."""
    unsearched: list[str]
    """What was not looked through, for people."""

    @property
    def found(self) -> int:
        """How much holds a key, all places together."""
        return sum(self.places.values())

    def lines(self) -> list[str]:
        """Return the proof for people."""
        lines = [f"{place}: {count:,}" for place, count in self.places.items()]
        if self.source_rows:
            lines.append(f"source: {self.source_rows:,} rows with a key; they are yours, and are not removed")
        lines += self.unsearched
        return lines if self.places else [*lines, "no key in tables, data files, logs, stores and pending files"]


def prove(lake: Lake, *, alone: bool) -> Proof:
    """Look for the keys everywhere."""
    places: dict[str, int] = {f"rows of {name}": count for name, count in lake.counts().items()}
    for name, files in find_files(lake, alone=alone).items():
        places[f"data files of {name}, referenced"] = len(files.live)
        places[f"data files of {name}, removed"] = len(files.removed)
        places[f"data files of {name}, in no log"] = len(files.unknown)
        places[f"data files of {name}, unreadable"] = len(files.broken)
    for name, found in find_in_logs(lake).items():
        places[f"log files of {name}"] = len(found)
    places["files of local stores"] = len(find_in_stores(lake.config, lake.keys, alone=alone))
    source, rows, unsearched = lake.config.source, 0, []
    if source.kind == "kafka":
        unsearched.append("source: a topic is not searched; its records leave it with its own retention")
    else:
        try:
            rows = _source_rows(lake)
        except PySparkException as error:
            unsearched.append(f"source: {source.path!r} can't be read, and was not searched ({first_line(error)})")
    if source.format == "avro":
        unsearched.append(
            "dead letters: of Avro their rows are base64, in which a key is not found; look at them by hand"
        )
    return Proof({place: count for place, count in places.items() if count}, rows, unsearched)


def _source_rows(lake: Lake) -> int:
    """Count the source's rows with a key: by column where files have columns, else by text."""
    source, spark = lake.config.source, lake.tables.spark
    if source.kind == "delta" and source.path in map(lake.tables.path, lake.holders):
        return 0
    if source.kind == "delta" or source.format == "parquet":
        reader = spark.read.format("delta" if source.kind == "delta" else "parquet")
        rows = (reader if source.kind == "delta" else reader.option("recursiveFileLookup", "true")).load(source.path)
        texts = rows.select(F.col(lake.config.event.key).cast("string").alias("value"))
        return matching(texts.alias("t"), lake.frame, F.expr("t.value = k.key")).count()
    texts = spark.read.option("recursiveFileLookup", "true").text(source.path)
    return matching(texts.alias("t"), lake.frame, F.expr("t.value rlike k.value")).count()
