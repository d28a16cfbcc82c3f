"""Keys in a table's log: Delta keeps the least and greatest text of each file there, long after the file is gone."""

import json
import uuid
from collections import defaultdict
from functools import reduce
from pathlib import PurePath
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.paths import normal_path
from sessionlake.engine import failpoints
from sessionlake.jobs.forget.keys import matching
from sessionlake.jobs.forget.lake import Lake
from sessionlake.warehouse.filesystem import as_name, write_text
from sessionlake.warehouse.tables import Tables

TEMPORARY = ".forget.tmp"
"""The suffix of files that a crash may leave before they take another file's place."""


def replace_text(tables: Tables, uri: str, text: str) -> None:
    """Replace a file's text, at once, with the modification time that it had if the file system lets that be set.

    Object stores take a file's place when it is closed. Elsewhere a file takes another one's place by a rename, which
    is one step in HDFS and in POSIX only: Hadoop's own way for local files deletes first, as it does the checksum.
    """
    fs, path = tables.file_system(uri)
    scheme = fs.getUri().getScheme()
    if scheme not in ("file", "hdfs"):
        write_text(fs, path, text)
        return
    modified = fs.getFileStatus(path).getModificationTime()
    temporary = path.suffix(f".{uuid.uuid4().hex}{TEMPORARY}")
    jvm: Any = tables.spark._jvm  # noqa: SLF001
    if scheme == "file":
        local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(fs.getConf())
        fs = local.getRawFileSystem()
        fs.delete(local.getChecksumFile(path), False)
    write_text(fs, temporary, text)
    failpoints.hit("forget_before_rename")
    if scheme == "file":
        fs.rename(temporary, path)
    else:
        hadoop = jvm.org.apache.hadoop.fs
        options = getattr(hadoop, "Options$Rename")
        how = tables.spark.sparkContext._gateway.new_array(options, 1)  # type: ignore[union-attr]  # noqa: SLF001
        how[0] = options.OVERWRITE
        hadoop.FileContext.getFileContext(path.toUri(), fs.getConf()).rename(temporary, path, how)
    fs.setTimes(path, modified, -1)


_COMMIT, _CHECKSUM, _CHECKPOINT = ".json", ".crc", ".parquet"
_LEFT = ".tmp"
_ADD = "struct<path string, stats string>"
_INFO = "struct<operationParameters map<string, string>>"
_CONDITIONS = ""
"""Stands for a data file if the commit's own conditions hold a key: the conditions of a DELETE by hand."""

LogFiles = dict[str, set[str]]
"""URIs of a log's files, each with the data files (as the log writes their paths) whose statistics hold a key there."""


def find_in_logs(lake: Lake, *, alone: bool) -> dict[str, LogFiles]:
    """Look into the logs' commits, checksums and checkpoints for entries of files that are no longer part of their table; by table.

    A crash may leave files under temporary names, which may hold any key. Our own are always included. Those of others
    are included only if no driver runs (`alone`), because a driver may be writing them.
    """
    live, paths = [], defaultdict(list)
    places = {normal_path(_folder(lake, name)): name for name in lake.holders}
    for name in lake.holders:
        live += [(path.rpartition("/")[2],) for path in lake.tables[name].read().inputFiles()]
        for file in (n for n in lake.tables.names(_folder(lake, name)) if n[0].isdigit()):
            paths[PurePath(file).suffix].append(f"{_folder(lake, name)}/{file}")
    adds = [_statistics(lake, kind, paths[kind]) for kind in (_COMMIT, _CHECKSUM, _CHECKPOINT) if paths[kind]]
    table = F.broadcast(lake.tables.spark.createDataFrame(live, "name string"))
    of_all = reduce(DataFrame.unionAll, adds).toDF("path", "stats", "file").where("stats is not null")
    dead = of_all.join(table, F.element_at(F.split("path", "/"), -1) == F.col("name"), "left_anti")
    rows = matching(
        dead.alias("t"), lake.frame, F.expr(f"t.stats rlike if(t.path = '{_CONDITIONS}', k.condition, k.statistics)")
    )
    found: dict[str, LogFiles] = {name: {} for name in lake.holders}
    for row in rows.select("file", "path").distinct().collect():
        folder, _, file = unquote(row["file"]).rpartition("/")
        name = places[normal_path(folder)]
        found[name].setdefault(f"{_folder(lake, name)}/{file}", set()).add(row["path"])
    for name, files in found.items():
        left = (n for n in lake.tables.names(_folder(lake, name)) if n.endswith(_LEFT if alone else TEMPORARY))
        files |= {f"{_folder(lake, name)}/{n}": set() for n in left}
    return found


def _folder(lake: Lake, name: str) -> str:
    return f"{lake.tables[name].uri}/_delta_log"


def _statistics(lake: Lake, kind: str, paths: list[str]) -> DataFrame:
    """Return path, stats and URI of the log's file of each data file that some files of logs name as added or removed."""
    # Delta cleans its log, too, at any time.
    reader = lake.tables.spark.read.option("ignoreMissingFiles", "true")
    file = F.col("_metadata.file_path").alias("file")
    paths = [as_name(path) for path in paths]
    path, stats = (F.coalesce(f"add.{name}", f"remove.{name}").alias(name) for name in ("path", "stats"))
    if kind == _CHECKSUM:
        adds = F.explode(F.from_json("value", f"allFiles array<{_ADD}>")["allFiles"])
        return (
            reader.text(paths, wholetext=True).select(adds.alias("add"), file).select("add.path", "add.stats", "file")
        )
    if kind == _CHECKPOINT:
        return reader.schema(f"add {_ADD}, remove {_ADD}").parquet(*paths).select(path, stats, file)
    log = reader.schema(f"add {_ADD}, remove {_ADD}, commitInfo {_INFO}").json(paths)
    conditions = F.concat_ws(" ", F.map_values("commitInfo.operationParameters"))
    is_info = F.col("commitInfo").isNotNull()
    return log.select(
        F.when(is_info, _CONDITIONS).otherwise(path).alias("path"),
        F.when(is_info, conditions).otherwise(stats).alias("stats"),
        file,
    )


def erase_in_logs(lake: Lake, *, alone: bool) -> int:
    """Take the keys out of the logs; return how many files changed.

    A commit keeps of the statistics of a file that held a key the number of rows only, none of the conditions if they
    name one, and its own length, which readers may have noted. Checksums are optional: those with a key go. So do checkpoints, once there is a newer one,
    if no driver runs (`alone`) that may be reading them.
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
            # Texts in a line may hold other characters that Python takes for a line's end.
            new = "\n".join(_cut(line, added) if line else line for line in text.split("\n"))
            replace_text(lake.tables, uri, new)
        elif uri.endswith((_CHECKSUM, TEMPORARY)) or alone:
            lake.tables.delete(uri)
        else:
            continue
        changed += 1
    return changed


def _cut(line: str, added: set[str]) -> str:
    """Return a commit's line, of the same length; if the line adds or removes a file that held a key, the row count is the only statistic."""
    action = json.loads(line)
    if _CONDITIONS in added and "commitInfo" in action:
        action["commitInfo"]["operationParameters"] = {}
    elif (file := action.get("add") or action.get("remove")) and file["path"] in added and file.get("stats"):
        rows = json.loads(file["stats"]).get("numRecords")
        file["stats"] = json.dumps({"numRecords": rows}, separators=(",", ":"))
    else:
        return line
    new = json.dumps(action, separators=(",", ":"), ensure_ascii=False)
    return new + " " * (len(line.encode()) - len(new.encode()))
