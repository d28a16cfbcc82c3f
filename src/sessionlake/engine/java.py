"""The driver's JVM: its class path, its command line, its output."""

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from sessionlake.engine.class_archive import find_archive
from sessionlake.errors import ConfigError
from sessionlake.jars import find_jars
from sessionlake.jars.java import java_command, require_java

BOOT_NOISE = b"WARNING: Using incubator modules: jdk.incubator.vector"
OPTIONS = "spark.driver.defaultJavaOptions"
"""Spark puts them before the user's own, `spark.driver.extraJavaOptions`."""
LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "sessionlake.local.LocalFiles",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "sessionlake.local.LocalContext",
}
"""Local files without Hadoop's child processes (jars/LocalFiles.scala)."""
_CLASS_PATH = "SPARK_DIST_CLASSPATH"
_NO_DTD = "-Djavax.xml.accessExternalDTD="
"""Java's XML parsers open no address and no file from a document: some SQL functions parse texts of whoever wrote the SQL."""
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|account[.]?key|api[.]?key|credential")


def in_one_jvm(conf: SparkConf) -> bool:
    """Say whether tasks run in the driver's JVM, whose class path and options are then all there are."""
    return re.fullmatch(r"local(\[[^]]*\])?", conf.get("spark.master", "") or "") is not None


def start_java(conf: SparkConf, driver_memory: str) -> None:
    """Start the driver's JVM with the jars and this package's log settings; the chosen settings are added to `conf`.

    The JVM's boot warning is suppressed. So is its standard output, for example Delta's line about each VACUUM.
    """
    java_command()
    jars = find_jars()
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    options = [f"-Dlog4j2.configurationFile={log_settings}", _NO_DTD]
    class_path: Sequence[Path] = ()
    if in_one_jvm(conf):
        class_path = jars
        if any(
            jar.name.startswith("sessionlake_LocalFiles") for jar in jars
        ):  # not in a folder filled by an older version
            for key, value in LOCAL_FILES.items():
                conf.setIfMissing(key, value)
        if archive := find_archive(jars):
            options += [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    else:
        conf.setIfMissing("spark.jars", ",".join(map(str, jars)))
    conf.setIfMissing("spark.driver.memory", driver_memory)
    conf.set(OPTIONS, " ".join([*options, conf.get(OPTIONS, "") or ""]).strip())
    try:
        with _class_path(class_path):
            gateway = launch_gateway(without_secrets(conf), {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL})
    except PySparkRuntimeError as error:
        require_java()
        raise ConfigError(
            "Spark's Java did not start (its message is above): correct SPARK_HOME, JAVA_HOME and Spark's settings"
        ) from error
    threading.Thread(target=_forward, args=(gateway.proc.stderr,), name="spark-stderr", daemon=True).start()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001


def end_stopped_java() -> None:
    """End the Java of a stopped session: PySpark would use it again, with its class path, which may lack Delta's jars."""
    gateway = SparkContext._gateway  # noqa: SLF001
    if gateway is None or SparkContext._active_spark_context is not None:  # noqa: SLF001
        return
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin is not None:
        process.stdin.close()  # Spark's Java ends when its standard input does
    process.wait()


@contextmanager
def _class_path(jars: Sequence[Path]) -> Iterator[None]:
    """Put the jars at the end of the class path of the JVM that is started meanwhile.

    Hadoop asks for a file system before Spark has read spark.jars; and spark.driver.extraClassPath is the user's.
    """
    before = os.environ.get(_CLASS_PATH)
    if jars:
        os.environ[_CLASS_PATH] = os.pathsep.join([*([before] if before else []), *map(str, jars)])
    try:
        yield
    finally:
        if before is not None:
            os.environ[_CLASS_PATH] = before
        elif jars:
            del os.environ[_CLASS_PATH]


def without_secrets(conf: SparkConf) -> SparkConf:
    """Return the settings that may stand on Java's command line, which all users of the machine can see.

    The session gets all settings over py4j.
    """
    shown = SparkConf(loadDefaults=False)
    shown.setAll([(name, value) for name, value in conf.getAll() if not _SECRET.search(name)])
    return shown


def _forward(stream: IO[bytes]) -> None:
    """Pass on the JVM's standard error, except for a warning that no option of Java's silences."""
    for line in stream:
        if not line.startswith(BOOT_NOISE):
            with suppress(OSError):  # if nobody reads it any more, Java must still not wait for a full pipe
                os.write(2, line)
