"""The files that a batch is planned to read, by the file source's log in the checkpoint: which are gone, and which are read in parts."""

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.sources.base import same
from sessionlake.sources.decoding.files import NUMBER, PARTS, PATH, first_link, is_local, local_path
from sessionlake.sources.decoding.pieces import parts_of
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AT_ONCE = 16
_LOG_FILE = re.compile(r"(\d+)(\.compact)?")


class PlannedFiles:
    """The files that the checkpoint of a pipeline has planned.

    `number` says which of the pipeline's event inputs the files are, from 0, and `column` how a column of theirs is called
    among a batch's rows.
    """

    def __init__(self, tables: Tables, config: Config, number: int = 0, column: Callable[[str], str] = same) -> None:
        self._tables, self._checkpoint = tables, config.checkpoint
        self._number, self._column = number, column
        self._place, self._layout = config.source.path, config.source.layout
        self._local = is_local(self._place)
        self._cores = tables.spark.sparkContext.defaultParallelism
        self._reached: dict[int, int] = {-1: -1}
        self.size: int | None = None
        """The bytes of the files whose rows were asked for last; None if unknown."""

    def rows(self, rows: "DataFrame", batch_id: int, offsets: str | None) -> "DataFrame":
        """Return the rows of a batch as they are, or with NUMBER and PARTS.

        They are needed in three cases: a planned file is gone, which Spark silently ignores (it has 0 parts); a file is planned
        through a link; there are fewer files than cores, and some are large. `offsets` is the text of the batch's offset file.
        """
        self._reached[batch_id] = _last_entry(offsets, self._number)
        planned = self._planned(batch_id)
        sizes = self._sizes(batch_id)
        self.size = sum(size or 0 for size in sizes.values()) if self._local else None
        parts = {path: self._parts(path, size, len(sizes)) for path, size in sizes.items()}
        special = {path: count for path, count in parts.items() if count != 1}
        if offsets is None or not (special or set(sizes) != set(planned)):
            return rows
        # Spark's own rows of the files stay if it has read their content. Else the plan says the same.
        listed = parts if self._local else special
        tasks = [(path, i, count) for path, count in listed.items() for i in range(max(1, count))]
        path, number, parts_ = (self._column(name) for name in (PATH, NUMBER, PARTS))
        made = self._tables.spark.createDataFrame(tasks, f"{PATH} string, {NUMBER} int, {PARTS} int")
        made = made.toDF(path, number, parts_)
        if self._local and rows.columns == [path]:
            return made
        # A row that is no file belongs to another input.
        others = rows.where(rows[path].isNull()) if self._local else rows
        return others.withColumns({number: F.lit(0), parts_: F.lit(1)}).unionByName(made, allowMissingColumns=True)

    def ranks(self, batch_id: int) -> dict[str, int]:
        """Return the planned files of a batch, ranked by modification time and path, as Spark's log has them."""
        return {path: rank for rank, path in enumerate(self.of(batch_id))}

    def gone(self, batch_id: int) -> list[str]:
        """Return a batch's missing planned files."""
        return [path for path, size in self._sizes(batch_id).items() if size is None]

    def _parts(self, path: str, size: int | None, files: int) -> int:
        """Return into how many parts a file is cut, 0 if it is gone."""
        if size is None:
            return 0
        if not self._local or files >= self._cores or self._layout is None:
            return 1
        return parts_of(path, size, self._layout, -(-self._cores // files))

    def of(self, batch_id: int) -> list[str]:
        """Return the files of a batch as workers name them, in order.

        A link below the source's directory stands for all files of the batch that are planned through it.
        """
        paths = self._planned(batch_id)
        links = {path: first_link(path, self._place) for path in paths} if self._local else {}
        return list(dict.fromkeys(links.get(path) or path for path in paths))

    def _planned(self, batch_id: int) -> list[str]:
        """Return the files of a batch as Spark has planned them, in order."""
        end, before = self.reached(batch_id), self.reached(batch_id - 1)
        self._reached = {batch_id - 1: before, batch_id: end}
        return [path for entry in range(before + 1, end + 1) for path in self._entry(entry)]

    def reached(self, batch_id: int) -> int:
        """Return the file log's last entry up to a batch; -1 if there is none."""
        if batch_id not in self._reached:
            offsets = self._tables.read_text(f"{self._checkpoint}/offsets/{batch_id}")
            self._reached[batch_id] = _last_entry(offsets, self._number)
        return self._reached[batch_id]

    def _entry(self, number: int) -> list[str]:
        log = f"{self._checkpoint}/sources/{self._number}/{number}"
        text = self._tables.read_text(log) or self._tables.read_text(f"{log}.compact") or ""
        marked = "\n".join(line for line in text.splitlines() if f'"batchId":{number}' in line)
        paths = (path for path, entry in _entries(marked) if entry == number)
        return [local_path(path) if self._local else path for path in paths]

    def _sizes(self, batch_id: int) -> dict[str, int | None]:
        planned = self.of(batch_id)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(planned, pool.map(self._size, planned), strict=True))

    def _size(self, path: str) -> int | None:
        """Return a file's size in bytes; None if it is gone, 0 if the size is unknown."""
        if not self._local:
            system, found = self._tables.file_system(path)
            return 0 if system.exists(found) else None
        try:
            return Path(path).lstat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError:
            return 0


def log_names(tables: Tables, directory: str, reached: int) -> list[str]:
    """Return a file log's files up to an entry: the last compacted entry's, and later entries'."""
    parsed = [(int(m[1]), bool(m[2]), m[0]) for m in map(_LOG_FILE.fullmatch, tables.names(directory)) if m]
    compacted = max((n for n, is_compact, _ in parsed if is_compact), default=-1)
    names = [name for n, is_compact, name in parsed if n == compacted and is_compact]
    names += [name for n, is_compact, name in parsed if n > compacted and not is_compact]
    if not names or max(n for n, _, _ in parsed) < reached:
        raise PipelineStateError(
            f"checkpoint: the log of source files in {directory!r} is incomplete; put the checkpoint back, or use `sessionlake rebuild`"
        )
    return names


def _entries(text: str) -> Iterator[tuple[str, int]]:
    """Yield path and number of the entries in a file of the log."""
    for line in text.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            yield unquote(entry["path"]), entry["batchId"]


def _last_entry(offsets: str | None, number: int) -> int:
    lines = (offsets or "").splitlines()[2:]
    events = lines[number] if len(lines) > number else "-"
    return -1 if events == "-" else int(json.loads(events)["logOffset"])
