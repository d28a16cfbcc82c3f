"""Settings of Spark for one driver: a folder for its Unix sockets, removed with the driver, and a fair share of cores for each pipeline.

The folders of killed drivers are removed at the next driver's start.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_PREFIX, _LOCK = "sessionlake-sockets-", "lock"
_YOUNG_SECONDS = 60


def socket_folder() -> str:
    """Return a new folder, for this user alone, that is removed when this process exits."""
    remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    # A plain descriptor, which nobody closes: it stays open, and so locked, while this process lives.
    fcntl.flock(os.open(folder / _LOCK, os.O_CREAT | os.O_WRONLY), fcntl.LOCK_EX)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's folders whose process has ended: nobody holds their lock. Young folders stay, as they may have no lock yet."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _YOUNG_SECONDS:
                continue
            with (folder / _LOCK).open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        except OSError:
            continue  # in use, or another one removes it


_POOL = "spark.scheduler.pool"


def fair_pools(weights: Mapping[str, int]) -> dict[str, str]:
    """Return the settings with which Spark shares its cores between pools, by the weight of each.

    A pool that has nothing to do leaves its share to the others.
    """
    root = ET.Element("allocations")
    for name, weight in weights.items():
        pool = ET.SubElement(root, "pool", name=name)
        for key, value in (("schedulingMode", "FIFO"), ("weight", str(weight)), ("minShare", "0")):
            ET.SubElement(pool, key).text = value
    file = Path(socket_folder(), "pools.xml")
    ET.ElementTree(root).write(file, encoding="unicode")
    return {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": file.as_uri()}


def work_in_pool(spark: SparkSession, pool: str) -> None:
    """Give this thread's work in Spark, and its queries, a pool's share."""
    spark.sparkContext.setLocalProperty(_POOL, pool)


def work_in_session(spark: SparkSession) -> None:
    """Make a session this thread's active one: Delta makes frames in the active session, and their views would be unknown in another."""
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
