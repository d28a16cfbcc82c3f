"""The Java that Spark and Ivy run on, found as Spark finds it, and the PySpark whose jars it is given."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from sessionlake.errors import ConfigError, MissingJavaError

OLDEST = 17
_REMEDY = (
    f"install OpenJDK {OLDEST} (Debian, Ubuntu: apt install openjdk-{OLDEST}-jre-headless; "
    f"macOS: brew install openjdk@{OLDEST}) and put it on PATH or in JAVA_HOME"
)


def java_command() -> str:
    """Return Java's path: of $JAVA_HOME, else of PATH; MissingJavaError if there is none."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(Path(home, "bin", "java") if home else "java")
    if path is None:
        where = f"JAVA_HOME={home} holds none" if home else "none on PATH, and no JAVA_HOME"
        raise MissingJavaError(f"Java: {where}; {_REMEDY}")
    return str(path)


def check_java() -> None:
    """Raise ConfigError if Java is missing, or too old for Spark. Java starts only if its files do not show its version."""
    java = java_command()
    release = Path(java).resolve().parent.parent / "release"
    version = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE) if release.is_file() else None
    if version is None:
        require_java()
    else:
        _check_version(java, int(version[1]))


def pyspark_home() -> Path:
    """Return the folder of this Python's PySpark, where Spark finds its `jars`; ConfigError if there is none."""
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise ConfigError("pyspark: is not installed for this Python; run: pip install 'sessionlake[spark]'")
    return Path(pyspark.origin).parent


def require_java() -> None:
    """Raise ConfigError if Java is missing, does not start or is too old for Spark. It starts Java, which takes a moment."""
    java = java_command()
    done = subprocess.run([java, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', done.stderr)
    if done.returncode or version is None:
        said = next(iter(done.stderr.strip().splitlines()), "nothing")
        raise ConfigError(f"Java: {java} does not run (it said: {said}); {_REMEDY}")
    _check_version(java, int(version[1]))


def _check_version(java: str, found: int) -> None:
    if found < OLDEST:
        raise ConfigError(f"Java: {java} is version {found}, Spark needs {OLDEST} or later; {_REMEDY}")
