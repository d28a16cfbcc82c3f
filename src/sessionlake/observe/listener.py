"""Spark's settings for OpenLineage's own listener, which reports queries that Spark itself plans and writes."""

import os

from sessionlake.config.load import Config
from sessionlake.jars import find_jars
from sessionlake.observe.lineage import api_key

LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"


def listener_conf(config: Config) -> dict[str, str]:
    """Return the settings; none without `lineage.listener`, or under spark-submit, whose --conf and --jars decide.

    Raises ConfigError if the listener's jar can't be had.
    """
    lineage = config.lineage
    if not lineage.listener or "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    conf = {
        "spark.jars": ",".join(map(str, [*find_jars(), *find_jars("openlineage")])),
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
