"""Keys in a table's log: Delta keeps the least and greatest text of each file there, long after the file is gone."""

import json
from dataclasses import dataclass

from pyspark.sql import functions as F

from sessionlake.engine import failpoints
from sessionlake.jobs.forget_fs import Files
from sessionlake.jobs.forget_keys import matching
from sessionlake.jobs.forget_lake import Lake


@dataclass(frozen=True)
class LogFiles:
    """Files of a log in which statistics hold a key."""

    commits: list[str]
    checksums: list[str]
    checkpoints: list[str]

    def __len__(self) -> int:
        return len(self.commits) + len(self.checksums) + len(self.checkpoints)


def find_in_log(lake: Lake, name: str) -> LogFiles:
    """Look into the log's commits, checksums and checkpoints."""
    found = {kind: _holding(lake, name, kind) for kind in (".json", ".crc", ".checkpoint.parquet")}
    return LogFiles(*(found[kind] for kind in found))


def _holding(lake: Lake, name: str, kind: str) -> list[str]:
    folder = f"{lake.tables.path(name)}/_delta_log"
    suffix = ".parquet" if kind.endswith(".parquet") else kind
    paths = [f"{folder}/{n}" for n in lake.tables.names(folder) if n.endswith(suffix) and n[0].isdigit()]
    if not paths:
        return []
    spark = lake.tables.spark
    if suffix == ".parquet":
        stats = (
            spark.read.option("ignoreMissingFiles", "true").parquet(*paths).select("add.stats", "_metadata.file_name")
        )
    elif kind == ".json":
        log = spark.read.option("ignoreMissingFiles", "true").schema("add struct<stats string>").json(paths)
        stats = log.select("add.stats", "_metadata.file_name")
    else:
        text = spark.read.option("ignoreMissingFiles", "true").text(paths, wholetext=True)
        stats = text.select(F.regexp_replace("value", r"\\", "").alias("stats"), "_metadata.file_name")
    live = stats.where("stats is not null").toDF("stats", "file")
    rows = matching(live.alias("t"), lake.frame, F.expr("t.stats rlike k.statistics"))
    return sorted(f"{folder}/{row['file']}" for row in rows.select("file").distinct().collect())


def erase_in_log(lake: Lake, name: str, *, alone: bool) -> int:
    """Take the keys out of a table's log; return how many files changed.

    A commit keeps its statistics but for the least and greatest values of files that held a key, and its length, which
    readers may have noted. Checksums are optional: those with a key go. So do checkpoints, once there is a newer one,
    where no driver runs (`alone`) that may be reading them.
    """
    found, files = find_in_log(lake, name), Files(lake.tables.spark)
    patterns = [row["statistics"] for row in lake.frame.collect()] if found.commits else []
    changed = 0
    for uri in found.commits:
        failpoints.hit("forget_before_log")
        text = lake.tables.read_text(uri)
        if text is not None:
            files.replace(
                uri, "".join(_without_bounds(lake, line, patterns) for line in text.splitlines(keepends=True))
            )
            changed += 1
    for uri in found.checksums:
        files.delete(uri)
        changed += 1
    if found.checkpoints and alone:
        _checkpoint(lake, name)
        for uri in found.checkpoints:
            files.delete(uri)
            changed += 1
    return changed


def _without_bounds(lake: Lake, line: str, patterns: list[str]) -> str:
    """Return a line of a commit, as long as it was, an added file's statistics cut to its rows where they hold a key."""
    action = json.loads(line)
    stats = action.get("add", {}).get("stats")
    if stats is None or not _matches(lake, stats, patterns):
        return line
    rows = json.loads(stats).get("numRecords")
    action["add"]["stats"] = json.dumps({"numRecords": rows}, separators=(",", ":"))
    new = json.dumps(action, separators=(",", ":"), ensure_ascii=False)
    body = line.rstrip("\n")
    return new + " " * (len(body.encode()) - len(new.encode())) + line[len(body) :]


def _matches(lake: Lake, text: str, patterns: list[str]) -> bool:
    regex = lake.tables.spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]  # noqa: SLF001
    return any(regex.compile(pattern).matcher(text).find() for pattern in patterns)


def _checkpoint(lake: Lake, name: str) -> None:
    """Write a checkpoint of the table as it is now."""
    spark = lake.tables.spark
    delta = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]  # noqa: SLF001
    log = delta.forTable(spark._jsparkSession, lake.tables.path(name))  # noqa: SLF001
    none = spark._jvm.scala.Option.empty()  # type: ignore[union-attr]  # noqa: SLF001
    log.checkpoint(log.update(False, none, none), none)
