"""The files that a batch is planned to read, by the file source's log in the checkpoint; which of them are gone."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config import Config
from sessionlake.jobs.sessionizer.files import local_path
from sessionlake.jobs.sessionizer.operator import GONE, PATH
from sessionlake.jobs.sessionizer.stream import is_local
from sessionlake.tables import Tables

_AT_ONCE = 16


class PlannedFiles:
    """What the checkpoint of a pipeline with a source of files says."""

    def __init__(self, tables: Tables, config: Config) -> None:
        self._tables, self._checkpoint = tables, config.checkpoint
        self._local = is_local(config.source.path)
        self._reached: dict[int, int] = {-1: -1}

    def with_gone(self, rows: DataFrame, batch_id: int, offsets: str | None) -> DataFrame:
        """Return the rows of a batch and one, marked GONE, for each planned file that is there no more.

        Spark passes over such a file without a word. `offsets` is the text of the batch's offset file.
        """
        self._reached[batch_id] = _last_entry(offsets)
        gone = self.gone(batch_id)
        if not gone:
            return rows
        missing = self._tables.spark.createDataFrame([(path,) for path in gone], f"{PATH} string")
        marked = missing.select(PATH, F.lit(True).alias(GONE), F.timestamp_seconds(F.lit(0)).alias("clock"))
        return rows.withColumn(GONE, F.lit(False)).unionByName(marked, allowMissingColumns=True)

    def gone(self, batch_id: int) -> list[str]:
        """Return the planned files of a batch that are there no more."""
        planned = self.of(batch_id)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [path for path, there in zip(planned, pool.map(self._is_there, planned), strict=True) if not there]

    def of(self, batch_id: int) -> list[str]:
        """Return the files of a batch as workers name them, in order."""
        end = self.reached(batch_id)
        before = self.reached(batch_id - 1)
        self._reached = {batch_id: end}
        return [path for entry in range(before + 1, end + 1) for path in self._entry(entry)]

    def reached(self, batch_id: int) -> int:
        """Return the last entry of the file log that a batch and those before it read; -1 where none has."""
        if batch_id not in self._reached:
            self._reached[batch_id] = _last_entry(self._tables.read_text(f"{self._checkpoint}/offsets/{batch_id}"))
        return self._reached[batch_id]

    def _entry(self, number: int) -> list[str]:
        log = f"{self._checkpoint}/sources/0/{number}"
        text = self._tables.read_text(log) or self._tables.read_text(f"{log}.compact") or ""
        marked = (line for line in text.splitlines() if line.startswith("{") and f'"batchId":{number}' in line)
        entries = (json.loads(line) for line in marked)
        paths = (unquote(entry["path"]) for entry in entries if entry["batchId"] == number)
        return [local_path(path) if self._local else path for path in paths]

    def _is_there(self, path: str) -> bool:
        if not self._local:
            system, found = self._tables.file_system(path)
            return bool(system.exists(found))
        try:
            Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True


def _last_entry(offsets: str | None) -> int:
    lines = (offsets or "").splitlines()
    events = lines[2] if len(lines) > 2 else "-"
    return -1 if events == "-" else int(json.loads(events)["logOffset"])
