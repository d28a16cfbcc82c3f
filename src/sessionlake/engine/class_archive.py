"""An archive of Spark's classes, which Java maps into memory instead of reading, checking and linking each (JEP 350).

A session starts with a third less work. The archive holds for one Java, one PySpark and one set of jars, 190 MB for each;
Java itself sees if it doesn't fit, and then starts as it would without.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionlake.errors import ConfigError
from sessionlake.jars.cache import cache_directory
from sessionlake.jars.java import java_command, pyspark_home

SUFFIX = ".jsa"
EXIT_SECONDS = 300


def find_archive(jars: Sequence[Path]) -> Path | None:
    """Return the archive for these jars, this PySpark and this Java, as they are now; None if none was made."""
    file = _file(jars)
    return file if file.exists() else None


def make_archive(jars: Sequence[Path], train: Callable[[str], SparkSession]) -> Path:
    """Make the archive of the classes that `train` uses, and return it; it appears whole, by a rename.

    `train` gets options for Java, starts a session with them, does with it what users do, and returns it; it is stopped here.
    Remove older archives, of this PySpark or of a removed PySpark. ConfigError if Java makes no archive.
    """
    file = _file(jars)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_superseded(file.parent)
    half = file.with_suffix(f".{os.getpid()}.half")
    try:
        spark = train(f"-XX:ArchiveClassesAtExit={half}")
        gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM's sign to end; it writes the archive then
        gateway.proc.wait(EXIT_SECONDS)
        if not half.exists():
            raise ConfigError(
                "fast-start: Java made no archive of its classes; it needs OpenJDK 17 or later, not OpenJ9"
            )
        half.chmod(0o600)
        file.with_suffix(".for").write_text(str(pyspark_home()))
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
    return file


def _remove_superseded(folder: Path) -> None:
    for note in folder.glob("*.for"):
        pyspark = Path(note.read_text())
        if pyspark == pyspark_home() or not pyspark.exists():
            note.with_suffix(SUFFIX).unlink(missing_ok=True)
            note.unlink()


def _file(jars: Sequence[Path]) -> Path:
    """Return the archive's path, whose name stands for all that Java compares before it maps one.

    Java refuses an archive without a word if a jar was written again or the class path has another order, as after a
    reinstallation; so each jar's size and time count, and PySpark's in the order in which the folder lists them, which
    is that of the class path.
    """
    files = [Path(java_command()).resolve(), *(pyspark_home() / "jars").iterdir(), *jars]
    parts = [str(pyspark_home()), *map(_version, files)]
    return (
        cache_directory().with_name("classes")
        / f"{hashlib.sha256(os.pathsep.join(parts).encode()).hexdigest()[:12]}{SUFFIX}"
    )


def _version(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns}"
