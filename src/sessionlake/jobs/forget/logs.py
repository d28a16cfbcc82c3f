"""Keys in a table's log: Delta keeps the least and greatest text of each file there, long after the file is gone."""

import json
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.engine import failpoints
from sessionlake.jobs.forget.fs import TEMPORARY, replace_text
from sessionlake.jobs.forget.keys import matching
from sessionlake.jobs.forget.lake import Lake

_COMMIT, _CHECKSUM, _CHECKPOINT = ".json", ".crc", ".parquet"
_LEFT = ".tmp"
_ADD = "struct<path string, stats string>"
_INFO = "struct<operationParameters map<string, string>>"
_CONDITIONS = ""
"""Stands for a data file where it is the commit's own conditions that hold a key: those of a DELETE by hand."""

LogFiles = dict[str, set[str]]
"""URIs of a log's files, each with the data files (as the log writes their paths) whose statistics hold a key there."""


def find_in_logs(lake: Lake, *, alone: bool) -> dict[str, LogFiles]:
    """Look into the logs' commits, checksums and checkpoints, at files that their table has no more; by table.

    Files that a crash left half-way to their names may hold anybody's key: our own, and where no driver runs (`alone`),
    which may be writing some, all.
    """
    adds, live = [], []
    for name in lake.holders:
        live += [(path.rpartition("/")[2],) for path in lake.tables[name].read().inputFiles()]
        names = [n for n in lake.tables.names(_folder(lake, name)) if n[0].isdigit()]
        for kind in (_COMMIT, _CHECKSUM, _CHECKPOINT):
            paths = [f"{_folder(lake, name)}/{n}" for n in names if n.endswith(kind)]
            if paths:
                adds.append(_statistics(lake, kind, paths).select(F.lit(name), "path", "stats", "file"))
    table = F.broadcast(lake.tables.spark.createDataFrame(live, "name string"))
    of_all = reduce(DataFrame.unionAll, adds).toDF("table", "path", "stats", "file").where("stats is not null")
    dead = of_all.join(table, F.element_at(F.split("path", "/"), -1) == F.col("name"), "left_anti")
    rows = matching(
        dead.alias("t"), lake.frame, F.expr(f"t.stats rlike if(t.path = '{_CONDITIONS}', k.condition, k.statistics)")
    )
    found: dict[str, LogFiles] = {name: {} for name in lake.holders}
    for row in rows.select("table", "file", "path").distinct().collect():
        uri = f"{_folder(lake, row['table'])}/{row['file']}"
        found[row["table"]].setdefault(uri, set()).add(row["path"])
    for name, files in found.items():
        left = (n for n in lake.tables.names(_folder(lake, name)) if n.endswith(_LEFT if alone else TEMPORARY))
        files |= {f"{_folder(lake, name)}/{n}": set() for n in left}
    return found


def _folder(lake: Lake, name: str) -> str:
    return f"{lake.tables[name].uri}/_delta_log"


def _statistics(lake: Lake, kind: str, paths: list[str]) -> DataFrame:
    """Return path, stats and log file of each data file that some files of a log name as added."""
    # Delta cleans its log, too, at any time.
    reader = lake.tables.spark.read.option("ignoreMissingFiles", "true")
    file = F.col("_metadata.file_name").alias("file")
    if kind == _CHECKSUM:
        adds = F.explode(F.from_json("value", f"allFiles array<{_ADD}>")["allFiles"])
        return (
            reader.text(paths, wholetext=True).select(adds.alias("add"), file).select("add.path", "add.stats", "file")
        )
    if kind == _CHECKPOINT:
        return reader.parquet(*paths).select("add.path", "add.stats", file)
    log = reader.schema(f"add {_ADD}, commitInfo {_INFO}").json(paths)
    conditions = F.concat_ws(" ", F.map_values("commitInfo.operationParameters"))
    is_info = F.col("commitInfo").isNotNull()
    return log.select(
        F.when(is_info, _CONDITIONS).otherwise(F.col("add.path")).alias("path"),
        F.when(is_info, conditions).otherwise(F.col("add.stats")).alias("stats"),
        file,
    )


def erase_in_logs(lake: Lake, *, alone: bool) -> int:
    """Take the keys out of the logs; return how many files changed.

    A commit keeps of the statistics of a file that held a key the number of rows only, none of the conditions where they
    name one, and its own length, which readers may have noted. Checksums are optional: those with a key go. So do checkpoints, once there is a newer one,
    where no driver runs (`alone`) that may be reading them.
    """
    return sum(_erase(lake, name, found, alone=alone) for name, found in find_in_logs(lake, alone=alone).items())


def _erase(lake: Lake, name: str, found: LogFiles, *, alone: bool) -> int:
    changed = 0
    if alone and any(uri.endswith(_CHECKPOINT) for uri in found):
        lake.tables[name].checkpoint()
    for uri, added in sorted(found.items()):
        failpoints.hit("forget_before_log")
        if uri.endswith(_COMMIT):
            text = lake.tables.read_text(uri) or ""
            # Texts in a line may hold other characters that Python takes for the end of one.
            new = "\n".join(_cut(line, added) if line else line for line in text.split("\n"))
            replace_text(lake.tables, uri, new)
        elif uri.endswith((_CHECKSUM, TEMPORARY)) or alone:
            lake.tables.delete(uri)
        else:
            continue
        changed += 1
    return changed


def _cut(line: str, added: set[str]) -> str:
    """Return a line of a commit, as long as it was; if it adds one of the files, its statistics are the row count."""
    action = json.loads(line)
    if _CONDITIONS in added and "commitInfo" in action:
        action["commitInfo"]["operationParameters"] = {}
    elif action.get("add", {}).get("path") in added:
        rows = json.loads(action["add"]["stats"]).get("numRecords")
        action["add"]["stats"] = json.dumps({"numRecords": rows}, separators=(",", ":"))
    else:
        return line
    new = json.dumps(action, separators=(",", ":"), ensure_ascii=False)
    return new + " " * (len(line.encode()) - len(new.encode()))
