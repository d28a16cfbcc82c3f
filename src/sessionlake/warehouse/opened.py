"""Delta tables opened without Spark. deltalake takes some characters of a path for others: it is told paths here alone."""

import os
import re
import shutil
import tempfile
import weakref
from pathlib import Path

from deltalake import DeltaTable

from sessionlake.config.paths import is_remote, normal_path

_LOG = "_delta_log"
_MISTAKEN = re.compile(r"%[0-9A-Fa-f]{2}|\\")
"""deltalake decodes a path once more than it was encoded, and takes a backslash for a slash."""


_IMPATIENT = {"connect_timeout": "3s", "timeout": "5s", "max_retries": "1"}
"""Options under which a store that does not answer is given up after ten seconds. By default deltalake tries for minutes."""


def opened(uri: str, *, impatient: bool = False) -> DeltaTable:
    """Return the table at a local path or an object-store URI, at its newest version.

    Raises what deltalake raises, for example TableNotFoundError. With `impatient` an object store has ten seconds to answer.
    """
    if is_remote(uri):
        return DeltaTable(uri, storage_options={**storage_options(), **(_IMPATIENT if impatient else {})})
    path = os.path.realpath(normal_path(uri))
    if _MISTAKEN.search(path):
        return _through_links(Path(path))
    return DeltaTable(Path(path).as_uri())


def storage_options() -> dict[str, str]:
    """Return the options that deltalake does not read from the environment by itself."""
    # deltalake refuses an endpoint without TLS unless an option allows it. A user who names such an endpoint allows it.
    return {"allow_http": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else {}


def _through_links(path: Path) -> DeltaTable:
    """Return the table opened in a folder of links to its files, which lasts as long as the table."""
    folder = Path(tempfile.mkdtemp(prefix="sessionlake-"))
    try:
        (folder / _LOG).symlink_to(path / _LOG)
        table = DeltaTable(folder)
        # Only now: all files of the version that was opened are there.
        for entry in os.scandir(path):
            if entry.name != _LOG:
                (folder / entry.name).symlink_to(entry.path)
    except BaseException:
        shutil.rmtree(folder)
        raise
    weakref.finalize(table, shutil.rmtree, folder, ignore_errors=True)
    return table
