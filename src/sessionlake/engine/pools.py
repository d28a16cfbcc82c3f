"""Several pipelines in one Spark: a fair share of the cores for each."""

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.engine.sockets import socket_folder

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
    """Let what this thread does with Spark, and the queries that it starts, have the share of a pool."""
    spark.sparkContext.setLocalProperty(_POOL, pool)


def work_in_session(spark: SparkSession) -> None:
    """Make a session the active one of this thread: Delta makes frames in that one, and their views would be unknown in another."""
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
