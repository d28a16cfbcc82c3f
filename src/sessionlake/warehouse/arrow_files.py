"""Files as pyarrow reads and writes them in tasks, on a disk or in an object store."""

from pyarrow import fs

_SCHEMES = {"s3a": "s3", "s3n": "s3"}


def file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path in it. Object stores take credentials as their SDKs do."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return fs.LocalFileSystem(), uri
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
