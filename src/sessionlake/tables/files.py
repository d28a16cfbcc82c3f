"""Small files beside the tables, on whatever file system the warehouse lies: through Hadoop, as Spark reads it."""

import uuid
from typing import Any

from pyspark.sql import SparkSession


class Files:
    """Files of one warehouse (a path or an object-store URI)."""

    def __init__(self, spark: SparkSession, warehouse: str) -> None:
        self.spark, self.warehouse = spark, warehouse.rstrip("/")

    def path(self, name: str) -> str:
        """Return where a table lies."""
        return f"{self.warehouse}/{name}"

    def names(self, uri: str) -> list[str]:
        """Return the names in a directory; none where it is not there."""
        fs, path = self._file_system(uri)
        return [status.getPath().getName() for status in fs.listStatus(path)] if fs.exists(path) else []

    def read_text(self, uri: str) -> str | None:
        """Return a small file's text, or None where there is none."""
        fs, path = self._file_system(uri)
        if not fs.exists(path):
            return None
        stream = fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write_text_once(self, uri: str, text: str) -> None:
        """Write a small file, whole or not at all; one that is there stays."""
        fs, path = self._file_system(uri)
        temporary = path.suffix(f".{uuid.uuid4().hex}.tmp")
        stream = fs.create(temporary)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        if fs.exists(path) or not fs.rename(temporary, path):
            fs.delete(temporary, False)

    def _file_system(self, uri: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self.spark._jsc.hadoopConfiguration()), path

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm
