"""A text put in a file's place so that no reader, and no crash, ever meets less than one of the two."""

import uuid
from typing import Any

from sessionlake.engine import failpoints
from sessionlake.warehouse.filesystem import write_text
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
