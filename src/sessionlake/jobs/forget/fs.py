"""Files of a warehouse, on whatever file system Hadoop can reach."""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Entry:
    """A file."""

    path: str
    length: int

    @property
    def name(self) -> str:
        """Its name; those of data files are unique."""
        return self.path.rpartition("/")[2]


class Files:
    """List, look at, replace and delete files."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def under(self, uri: str) -> list[Entry]:
        """Return all files below a folder, checksums of Hadoop's own left out."""
        fs, path = self._at(uri)
        if not fs.exists(path):
            return []
        found, listing = [], fs.listFiles(path, True)
        while listing.hasNext():
            status = listing.next()
            found.append(Entry(status.getPath().toString(), int(status.getLen())))
        return found

    def is_parquet(self, entry: Entry) -> bool:
        """Say whether a file was written to its end."""
        fs, path = self._at(entry.path)
        if entry.length < len(_MAGIC):
            return False
        stream = fs.open(path)
        try:
            stream.seek(entry.length - len(_MAGIC))
            return bytes(stream.read() for _ in _MAGIC) == _MAGIC
        finally:
            stream.close()

    def delete(self, uri: str) -> None:
        """Delete a file; one that is gone already is no error."""
        fs, path = self._at(uri)
        fs.delete(path, False)

    def replace(self, uri: str, text: str) -> None:
        """Put another text in a file's place, at once, with the modification time that it had."""
        fs, path = self._at(uri)
        modified = fs.getFileStatus(path).getModificationTime()
        temporary = path.suffix(".forget.tmp")
        self._write(fs, temporary, text)
        jvm = self._spark._jvm  # noqa: SLF001
        hadoop = jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
        how = self._spark.sparkContext._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)  # type: ignore[union-attr]  # noqa: SLF001
        how[0] = getattr(hadoop, "Options$Rename").OVERWRITE
        hadoop.FileContext.getFileContext(path.toUri(), self._conf).rename(temporary, path, how)
        fs.setTimes(path, modified, -1)

    def _write(self, fs: Any, path: Any, text: str) -> None:
        stream = fs.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def _at(self, uri: str) -> tuple[Any, Any]:
        path = self._spark._jvm.org.apache.hadoop.fs.Path(uri)  # type: ignore[union-attr]  # noqa: SLF001
        return path.getFileSystem(self._conf), path

    @property
    def _conf(self) -> Any:
        return self._spark._jsc.hadoopConfiguration()  # noqa: SLF001
