"""Spark's settings for OpenLineage's own listener, which tells of queries that Spark itself plans and writes."""

import os
from pathlib import Path

from sessionlake.config import Config
from sessionlake.engine.spark import find_jars
from sessionlake.errors import ConfigError
from sessionlake.jobs.observe.lineage import api_key

LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"


def listener_conf(config: Config) -> dict[str, str]:
    """Return the settings; none without `lineage.listener`, or under spark-submit, whose --conf and --jars decide.

    Raises ConfigError where the listener's jar is not there.
    """
    lineage = config.lineage
    if not lineage.listener or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    jars = find_jars()
    conf = {
        "spark.jars": ",".join(map(str, [*jars, _listener_jar(jars[0].parent)])),
        "spark.extraListeners": LISTENER,
        "spark.openlineage.namespace": lineage.namespace,
        "spark.openlineage.transport.type": str(lineage.transport),
    }
    if lineage.transport == "file":
        return {**conf, "spark.openlineage.transport.location": str(lineage.path)}
    conf |= {
        "spark.openlineage.transport.url": str(lineage.url),
        "spark.openlineage.transport.endpoint": lineage.endpoint,
    }
    key = api_key(config)
    if key is not None:
        conf |= {"spark.openlineage.transport.auth.type": "api_key", "spark.openlineage.transport.auth.apiKey": key}
        # Spark's own pattern, and the key: else its UI would show it.
        conf["spark.redaction.regex"] = "(?i)secret|password|token|access[.]?key|apikey"
    return conf


def _listener_jar(jars: Path) -> Path:
    """Return the listener's jar: among Spark's, or in .openlineage/jars beside them."""
    for folder in (jars, jars.parent / ".openlineage" / "jars"):
        for jar in sorted(folder.glob("*openlineage-spark_*.jar")):
            return jar
    raise ConfigError(
        f"lineage.listener: no openlineage-spark jar in {str(jars)!r} or beside it; run `make openlineage-jars`, or set listener = false"
    )
