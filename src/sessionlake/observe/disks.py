"""The disk space that a pipeline uses on this machine, and the free space of these disks."""

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.observe import metrics
from sessionlake.observe.readings import Readings


def set_disks(readings: Readings, config: Config) -> None:
    """Set free bytes and size of the disks of store, warehouse (a local one) and temporary files, as of now.

    For a directory that does not exist yet its nearest parent is used. A place that can't be read has no value.
    """
    places = {"store": config.driver_store_dir, "temporary": tempfile.gettempdir()}
    if "://" not in config.pipeline.warehouse:
        places["warehouse"] = config.pipeline.warehouse
    for place, path in places.items():
        try:
            found = shutil.disk_usage(_existing(Path(path)))
        except OSError:
            continue
        readings.set(metrics.DISK_FREE, found.free, place)
        readings.set(metrics.DISK_SIZE, found.total, place)


def _existing(path: Path) -> Path:
    return path if path.exists() or path == path.parent else _existing(path.parent)


def store_bytes(config: Config) -> int:
    """Return the size of the pipeline's stores on this machine; files that a running stream removes meanwhile count nothing."""
    total = 0
    for directory, _, names in os.walk(config.driver_store_dir):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(directory, name).lstat().st_size
    return total
