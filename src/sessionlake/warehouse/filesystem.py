"""Small files next to the tables, on whatever file system the warehouse lies: through Hadoop, as Spark reads it."""

import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sessionlake.config.config import Config
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.changelog import Changelog, changelog_of
from sessionlake.warehouse.delta_log import LogFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MAGIC = b"PAR1"
"""The last bytes of a Parquet file. A file that ends with them was written completely."""
_OF_PATTERNS = re.compile(r"[\\\[\]{}*?]")


@dataclass(frozen=True)
class Entry:
    """A file."""

    path: str
    length: int

    @property
    def name(self) -> str:
        """Its name; data files' names are unique."""
        return self.path.rpartition("/")[2]


class Files(LogFiles):
    """A warehouse's files (a path or an object-store URI)."""

    def __init__(self, spark: "SparkSession", warehouse: str, changelog: Changelog) -> None:
        self.spark, self.warehouse, self.changelog = spark, warehouse.rstrip("/"), changelog

    @classmethod
    def of(cls, spark: "SparkSession", config: Config) -> Self:
        """Return a pipeline's files."""
        return cls(spark, config.pipeline.warehouse, changelog_of(config))

    def seen_by(self, changelog: Changelog) -> Self:
        """Return the same files with another changelog."""
        return type(self)(self.spark, self.warehouse, changelog)

    def names(self, uri: str) -> list[str]:
        """Return the names in a directory; none if it is not there."""
        fs, path = self.file_system(uri)
        if not fs.exists(path):
            return []
        listing = fs.listStatus(path)
        # Asked for each by itself, a log of thousands of files would take seconds. An array of a subclass of FileStatus, as
        # S3A's is, py4j would not take for one of FileStatus.
        gateway: Any = self.spark.sparkContext._gateway
        statuses = gateway.new_array(self._jvm.org.apache.hadoop.fs.FileStatus, len(listing))
        self._jvm.java.lang.System.arraycopy(listing, 0, statuses, 0, len(listing))
        paths = self._jvm.org.apache.hadoop.fs.FileUtil.stat2Paths(statuses)
        text = str(self._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(paths).mkString("\n"))
        return [line.rpartition("/")[2] for line in text.split("\n") if line]

    def read_text(self, uri: str) -> str | None:
        """Return a small file's text, or None if there is none."""
        if uri.startswith("/"):
            # A stream asks for some with each batch: through Hadoop that is about ten round trips to the JVM.
            try:
                return Path(uri).read_bytes().decode()
            except (FileNotFoundError, NotADirectoryError):
                return None
        fs, path = self.file_system(uri)
        try:
            stream = fs.open(path)
        except spark_names.Py4JJavaError:
            if fs.exists(path):
                raise
            return None
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_text_once(self, uri: str, text: str) -> None:
        """Write a small file, whole or not at all; an existing file stays."""
        # Under another name first, so that no reader sees half of it.
        fs, path = self.file_system(uri)
        temporary = path.suffix(f".{uuid.uuid4().hex}.tmp")
        write_text(fs, temporary, text)
        if fs.exists(path) or not fs.rename(temporary, path):
            fs.delete(temporary, False)

    def under(self, uri: str) -> list[Entry]:
        """Return all files below a folder, checksums of Hadoop's own left out."""
        fs, path = self.file_system(uri)
        if not fs.exists(path):
            return []
        files, listing = [], fs.listFiles(path, True)
        while listing.hasNext():
            status = listing.next()
            files.append(Entry(status.getPath().toString(), int(status.getLen())))
        return files

    def is_parquet(self, entry: Entry) -> bool:
        """Return whether a file was written completely; a file that is gone counts as complete."""
        if entry.length < len(_MAGIC):
            return False
        if entry.path.startswith("file:/"):
            try:
                with Path(entry.path.removeprefix("file:")).open("rb") as file:
                    file.seek(entry.length - len(_MAGIC))
                    return file.read(len(_MAGIC)) == _MAGIC
            except FileNotFoundError:
                return True
        fs, path = self.file_system(entry.path)
        try:
            stream = fs.open(path)
        except spark_names.Py4JJavaError:
            if fs.exists(path):
                raise
            return True
        try:
            stream.seek(entry.length - len(_MAGIC))
            return bytes(stream.read() for _ in _MAGIC) == _MAGIC
        finally:
            stream.close()

    def delete(self, uri: str) -> None:
        """Delete a file; a missing file is no error."""
        fs, path = self.file_system(uri)
        fs.delete(path, False)

    def lengths(self, uri: str) -> dict[str, int]:
        """Return the bytes of all files below a folder, by their paths relative to it."""
        fs, folder = self.file_system(uri)
        root = str(fs.makeQualified(folder).toString()).rstrip("/") + "/"
        return {entry.path.removeprefix(root): entry.length for entry in self.under(uri)}

    def copy(self, source: str, target: str) -> tuple[int, str]:
        """Copy a file over another; return its length and its SHA-256 in hexadecimal."""
        from_fs, from_path = self.file_system(source)
        to_fs, to_path = self.file_system(target)
        digest = self._jvm.java.security.MessageDigest.getInstance("SHA-256")
        read = self._jvm.java.security.DigestInputStream(from_fs.open(from_path), digest)
        self._jvm.org.apache.hadoop.io.IOUtils.copyBytes(read, to_fs.create(to_path, True), 1 << 20, True)
        return int(to_fs.getFileStatus(to_path).getLen()), bytes(digest.digest()).hex()

    def make_private(self, uri: str) -> None:
        """Make a directory that only this user may enter, if the file system knows of users."""
        fs, path = self.file_system(uri)
        mode = self._jvm.org.apache.hadoop.fs.permission.FsPermission("700")
        fs.mkdirs(path, mode)
        fs.setPermission(path, mode)

    def remove(self, uri: str) -> None:
        """Remove a file or a folder with all its content; a missing one is no error."""
        fs, path = self.file_system(uri)
        fs.delete(path, True)

    def file_system(self, uri: str) -> tuple[Any, Any]:
        """Return Hadoop's file system and path of a URI."""
        path = self._jvm.org.apache.hadoop.fs.Path(uri)
        return path.getFileSystem(self.spark._jsc.hadoopConfiguration()), path

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm


def as_name(path: str) -> str:
    r"""Return the path of a file or directory as Spark's readers of files take it.

    They take a bare path as a pattern, so that `in[1]` would be the directory `in1`. Delta's readers take the bare path.

    >>> as_name("/lake/in[1]") == r"/lake/in\[1\]"
    True
    """
    return _OF_PATTERNS.sub(r"\\\g<0>", path)


def is_pattern(path: str) -> bool:
    """Say whether Spark's readers of files take a bare path as something else than a name.

    >>> is_pattern("s3a://lake/*/in"), is_pattern("s3a://lake/in")
    (True, False)
    """
    return _OF_PATTERNS.search(path) is not None


def write_text(fs: Any, path: Any, text: str) -> None:
    """Write a small file through Hadoop; an existing file is removed first."""
    write_bytes(fs, path, text.encode())


def write_bytes(fs: Any, path: Any, content: bytes) -> None:
    """Write a file's content; an existing file is overwritten."""
    stream = fs.create(path, True)
    try:
        stream.write(bytearray(content))
    finally:
        stream.close()
