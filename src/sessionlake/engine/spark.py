"""The one place that creates a Spark session: its settings, its workers' Python, and the names of Java's classes, asked for once."""

import logging
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sessionlake.engine import failpoints
from sessionlake.engine.java import end_stopped_java, in_one_jvm, start_java
from sessionlake.engine.sockets import socket_folder
from sessionlake.errors import ConfigError
from sessionlake.stopping import handlers_kept


def remember_names() -> None:
    """Let py4j's objects remember the packages and classes that were read from them; a second call does nothing."""
    for holder in (JVMView, JavaPackage):
        if not hasattr(holder, "look_up"):
            holder.look_up = holder.__getattr__
            holder.__getattr__ = _remembering


def _remembering(holder: Any, name: str) -> Any:
    # Python calls this only for names that the object's own dictionary doesn't have.
    found = holder.look_up(name)
    # py4j takes a name for a package if no class has it. Such a name may be a class later, once its jar is added.
    if isinstance(found, JavaClass) or (isinstance(found, JavaPackage) and name.islower()):
        holder.__dict__[name] = found
    return found


LITTLE_JAVA = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=128m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For a stream of files, whose rows go through Python while Java plans and commits small jobs, and for runs of a few minutes on little
data: such a JVM spends more on compiling for throughput than it ever gets back (docs/decisions/0010-the-drivers-java.md)."""
GENERATED_CODE = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Settings of a session for a query that reads many rows in Java, in place of those of LITTLE_JAVA; to generate and compile the code of
such a query takes a second or two."""
SPARK_VERSION, DELTA_VERSION = "4.1", "4.3"
_CATALOG, _FOLDER = "spark.sql.catalogImplementation", "spark.sql.warehouse.dir"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

DEFAULTS: Mapping[str, str] = {
    "spark.sql.extensions": DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # A shard's task must stay a single task, on the executor with the shard's store, without a concurrent second attempt.
    "spark.sql.adaptive.enabled": "false",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.speculation": "false",
    # A shard that an idle executor takes over is restored there, and later restored again on the executor to which it belongs.
    # Waiting is cheaper. But the shards of an executor that dies in mid-batch wait so long, too.
    "spark.locality.wait.process": "30s",
    "spark.locality.wait.node": "0s",
    "spark.locality.wait.rack": "0s",
    # Shards are spread over the executors that are there: a standalone cluster needs spark.cores.max for this.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.python.daemon.module": "sessionlake.engine.daemon",
    "spark.python.worker.reuse": "true",
    # Over TCP a Python task costs 26 ms on two cores, over Unix sockets 8 ms.
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
    # JVM and worker overlap by batch. 4M rows of 200 bytes: 2.3 s, 150 MB a worker; in batches of 1M 4.3 s, 520 MB
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "67108864",
    # Delta's default of 50 partitions suits logs of many millions of files.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Spark lists more than 32 paths by a job with a task for each path, up to this number. VACUUM uses this number of tasks
    # even for a table of ten files.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def build_session(
    app_name: str,
    *,
    master: str | None = None,
    shuffle_partitions: int | None = None,
    driver_memory: str = "2g",
    little_java: bool = False,
    metastore: bool = False,
    extra_conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active Spark session as it is if it has Delta, else start one with Delta and this project's settings.

    Settings of spark-submit override the settings here, and the arguments override both; `extra_conf` is the strongest.
    `master` is `local[*, 4]` if nothing names one: all cores, and a failed task is tried 4 times as on a cluster.
    With `little_java`, a JVM that also runs the tasks gets the settings LITTLE_JAVA. With `metastore`, the catalog
    `spark_catalog` is Hive's metastore, by default the one in the current directory.
    Raises ConfigError, which says how to get the jars, if they are missing.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        require_delta(active)
        return active
    if warning := failpoints.warning():
        sys.stderr.write(f"{warning}\n")
    remember_names()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        SparkContext._ensure_initialized()  # noqa: SLF001  (only then does SparkConf have the settings of spark-submit)
    else:
        end_stopped_java()
    conf = SparkConf()
    chosen = {"spark.app.name": app_name, **(extra_conf or {})}
    if master is not None:
        chosen["spark.master"] = master
    if shuffle_partitions is not None:
        chosen.setdefault("spark.sql.shuffle.partitions", str(shuffle_partitions))
    conf.setAll(list(chosen.items()))
    conf.setIfMissing("spark.master", "local[*, 4]")
    local_mode = conf.get("spark.master", "").startswith("local")
    little = LITTLE_JAVA if little_java and in_one_jvm(conf) else {}
    here = _on_this_machine() if local_mode else {}
    if metastore:
        # A new schema keeps its folder's path: on this machine Spark's own default.
        here |= {_CATALOG: "hive", **({_FOLDER: str(Path.cwd() / "spark-warehouse")} if local_mode else {})}
    for key, value in {**DEFAULTS, **little, **here}.items():
        conf.setIfMissing(key, value)

    # PySpark would log an error's text and also raise the error.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    _use_this_python(local_mode=local_mode)
    if submitted:
        _require_delta()
    else:
        start_java(conf, driver_memory)
    jvm: Any = SparkContext._jvm  # noqa: SLF001
    spark_package = getattr(jvm.org.apache.spark, "package$")
    delta_package = getattr(jvm.io.delta, "package$")
    check_versions(
        str(spark_package.__getattr__("MODULE$").SPARK_VERSION()), str(delta_package.__getattr__("MODULE$").VERSION())
    )
    # The context alone: its handler of ctrl-C must go before the session is made, which calls Java many times.
    with handlers_kept():
        SparkContext.getOrCreate(conf)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def check_versions(spark: str, delta: str) -> None:
    """Raise ConfigError unless Spark and Delta are of the versions whose inner workings this package builds upon."""
    for name, found, built_for in (("Spark", spark, SPARK_VERSION), ("Delta", delta, DELTA_VERSION)):
        if found.split(".")[:2] != built_for.split("."):
            raise ConfigError(
                f"{name}: this is version {found}, and sessionlake works with {built_for} only; "
                f"run it on {name} {built_for}, or install the sessionlake that is made for {found}"
            )


def _on_this_machine() -> dict[str, str]:
    """Keep Spark on the loopback address, and its temporary files in a folder removed at exit."""
    folder = socket_folder()
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.dir": folder,
        # Spark makes a folder for its own tables even without any: by default in the user's directory.
        _FOLDER: f"{folder}/warehouse",
    }


def _use_this_python(*, local_mode: bool) -> None:
    """Let the workers run this interpreter. On a cluster its path may not exist, so there a given path stays."""
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if local_mode or variable not in os.environ:
            os.environ[variable] = sys.executable
    scripts = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", "")
    if scripts not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((scripts, path))


def require_delta(session: object) -> None:
    """Raise ConfigError unless a session, possibly the user's own, belongs to this process and its Java has Delta's jars."""
    if not isinstance(session, SparkSession):
        raise ConfigError(
            f"spark: this is a {type(session).__module__}.{type(session).__name__}, and its Java can't be reached from here; "
            "use sessionlake.spark(), or leave Spark out: sessionlake.read(config)"
        )
    if not _has_delta():
        raise ConfigError(
            "spark: this session has no jars of Delta Lake; end it with spark.stop(), and use spark = sessionlake.spark()"
        )


def _require_delta() -> None:
    if not _has_delta():
        raise ConfigError(
            'Spark was submitted without Delta\'s jars; add to spark-submit: --jars "$(sessionlake jars)/*.jar"'
        )


def _has_delta() -> bool:
    jvm = SparkContext._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    return loader.getResource(DELTA_EXTENSION.replace(".", "/") + ".class") is not None


def running_tasks() -> tuple[int, int] | None:
    """Return how many tasks of the stages that run now are done, and how many there are; None if none runs.

    May be called by any thread, also while Spark starts or ends: then None, too.
    """
    context = SparkContext._active_spark_context  # noqa: SLF001 (the one there is, not one that would be made)
    if context is None:
        return None
    try:
        tracker = context.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except Exception:  # noqa: BLE001 (Java may have ended, in any of its ways)
        return None
    known = [stage for stage in stages if stage is not None]
    total = sum(stage.numTasks for stage in known)
    return (sum(stage.numCompletedTasks for stage in known), total) if total else None
