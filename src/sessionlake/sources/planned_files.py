"""The files that a batch is planned to read, by the file source's log in the checkpoint: which are gone, and which are read in parts."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.sources.base import same
from sessionlake.sources.decoding.files import NUMBER, PARTS, PATH, is_local, local_path
from sessionlake.sources.decoding.pieces import parts_of
from sessionlake.warehouse.tables import Tables

_AT_ONCE = 16


class PlannedFiles:
    """What the checkpoint of a pipeline with a source of files says.

    `number` says which of the pipeline's event inputs the files are, from 0, and `column` how a column of theirs is called
    among a batch's rows.
    """

    def __init__(self, tables: Tables, config: Config, number: int = 0, column: Callable[[str], str] = same) -> None:
        self._tables, self._checkpoint = tables, config.checkpoint
        self._number, self._column = number, column
        self._local, self._format = is_local(config.source.path), config.source.file_format
        self._cores = tables.spark.sparkContext.defaultParallelism
        self._reached: dict[int, int] = {-1: -1}

    def rows(self, rows: DataFrame, batch_id: int, offsets: str | None) -> DataFrame:
        """Return the rows of a batch as they are, or with NUMBER and PARTS.

        That is where a planned file is there no more, which Spark passes over without a word (it has 0 parts); and where
        there are fewer files than cores, and large ones among them. `offsets` is the text of the batch's offset file.
        """
        self._reached[batch_id] = _last_entry(offsets, self._number)
        sizes = self._sizes(batch_id)
        parts = {path: self._parts(path, size, len(sizes)) for path, size in sizes.items()}
        special = {path: count for path, count in parts.items() if count != 1}
        if not special or offsets is None:
            return rows
        # Spark's own rows of the files stay where it has read their content. Else the plan says the same.
        listed = parts if self._local else special
        tasks = [(path, i, count) for path, count in listed.items() for i in range(max(1, count))]
        path, number, parts_ = (self._column(name) for name in (PATH, NUMBER, PARTS))
        made = self._tables.spark.createDataFrame(tasks, f"{PATH} string, {NUMBER} int, {PARTS} int")
        made = made.toDF(path, number, parts_)
        if self._local and rows.columns == [path]:
            return made
        # What is no file is of another input.
        others = rows.where(rows[path].isNull()) if self._local else rows
        return others.withColumns({number: F.lit(0), parts_: F.lit(1)}).unionByName(made, allowMissingColumns=True)

    def ranks(self, batch_id: int) -> dict[str, int]:
        """Return the planned files of a batch, ranked by modification time and path, as Spark's log has them."""
        return {path: rank for rank, path in enumerate(self.of(batch_id))}

    def gone(self, batch_id: int) -> list[str]:
        """Return the planned files of a batch that are there no more."""
        return [path for path, size in self._sizes(batch_id).items() if size is None]

    def _parts(self, path: str, size: int | None, files: int) -> int:
        """Return into how many parts a file is cut, 0 where it is gone."""
        if size is None:
            return 0
        if not self._local or files >= self._cores or self._format is None:
            return 1
        return parts_of(path, size, self._format, -(-self._cores // files))

    def of(self, batch_id: int) -> list[str]:
        """Return the files of a batch as workers name them, in order."""
        end = self.reached(batch_id)
        before = self.reached(batch_id - 1)
        self._reached = {batch_id: end}
        return [path for entry in range(before + 1, end + 1) for path in self._entry(entry)]

    def reached(self, batch_id: int) -> int:
        """Return the last entry of the file log that a batch and those before it read; -1 where none has."""
        if batch_id not in self._reached:
            offsets = self._tables.read_text(f"{self._checkpoint}/offsets/{batch_id}")
            self._reached[batch_id] = _last_entry(offsets, self._number)
        return self._reached[batch_id]

    def _entry(self, number: int) -> list[str]:
        log = f"{self._checkpoint}/sources/{self._number}/{number}"
        text = self._tables.read_text(log) or self._tables.read_text(f"{log}.compact") or ""
        marked = (line for line in text.splitlines() if line.startswith("{") and f'"batchId":{number}' in line)
        entries = (json.loads(line) for line in marked)
        paths = (unquote(entry["path"]) for entry in entries if entry["batchId"] == number)
        return [local_path(path) if self._local else path for path in paths]

    def _sizes(self, batch_id: int) -> dict[str, int | None]:
        planned = self.of(batch_id)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(planned, pool.map(self._size, planned), strict=True))

    def _size(self, path: str) -> int | None:
        """Return a file's bytes; None where it is gone, 0 where that can't be told."""
        if not self._local:
            system, found = self._tables.file_system(path)
            return 0 if system.exists(found) else None
        try:
            return Path(path).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return 0


def _last_entry(offsets: str | None, number: int) -> int:
    lines = (offsets or "").splitlines()[2:]
    events = lines[number] if len(lines) > number else "-"
    return -1 if events == "-" else int(json.loads(events)["logOffset"])
