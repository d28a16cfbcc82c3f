"""Files as pyarrow reads and writes them in tasks, on a disk or in an object store."""

from pyarrow import fs

from sessionlake.warehouse.delta_log import LogFiles

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it. Object stores take credentials as their SDKs do."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return fs.LocalFileSystem(), local_path(uri) or uri
    system, path = fs.FileSystem.from_uri(f"{_SCHEMES.get(scheme, scheme)}://{rest}")
    return system, path


def local_path(uri: str) -> str | None:
    """Return a path or URI as the path on this machine's disks; None if it lies elsewhere.

    >>> local_path("file:///lake"), local_path("/lake"), local_path("s3a://lake")
    ('/lake', '/lake', None)
    """
    if uri.startswith("file:"):
        return "/" + uri.removeprefix("file:").lstrip("/")
    return None if "://" in uri else uri


class ArrowFiles(LogFiles):
    """Small files anywhere, read without Spark; OSError if they can't be."""

    def names(self, uri: str) -> list[str]:
        """Return the names in a directory; none if it is not there."""
        system, path = file_system(uri)
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [info.base_name for info in found]

    def read_text(self, uri: str) -> str | None:
        """Return a file's text, or None if there is none."""
        system, path = file_system(uri)
        try:
            with system.open_input_file(path) as source:
                return str(source.read().decode())
        except FileNotFoundError:
            return None
