"""`sessionlake.spark`: a Spark session for notebooks and programs. Importing this imports no Spark."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sessionlake.extras import require_versions
from sessionlake.jars.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark(
    name: str = "sessionlake", *, master: str | None = None, memory: str = "4g", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """Return the active Spark session, else start one with Delta's jars and the settings that `sessionlake run` uses.

    The jars are fetched if they are not there (`sessionlake jars`). `master` is `local[*, 4]` if nothing names one, `memory` that
    of the driver's Java, and `conf` has further settings, which are the strongest. ConfigError if Java or the jars are missing,
    or if the active session lacks Delta's jars.
    """
    from sessionlake.engine.spark import build_session

    require_versions("spark")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_java()
    return build_session(name, master=master, driver_memory=memory, extra_conf=conf)
