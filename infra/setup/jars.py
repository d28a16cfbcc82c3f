"""Fetch the jars that ivy.xml lists into .jars/, with the Ivy that Spark ships; do nothing where they are there."""

import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
JARS = HERE.parents[1] / ".jars"
WORK = JARS / "work"
LOG = JARS / "ivy.log"


def expected_jars() -> list[str]:
    dependencies = ET.parse(HERE / "ivy.xml").iter("dependency")
    return sorted(f"{d.attrib['org']}_{d.attrib['name']}-{d.attrib['rev']}.jar" for d in dependencies)


def present_jars(folder: Path) -> list[str]:
    return sorted(jar.name for jar in folder.glob("*.jar"))


def resolve() -> None:
    """Run Ivy into WORK; exit with its log's last lines where it fails."""
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else "java"
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        sys.exit("jars: no pyspark beside this Python; run `make setup`")
    ivy = next(Path(pyspark.origin).parent.glob("jars/ivy-*.jar"))
    command = [java, "-jar", str(ivy), "-settings", str(HERE / "ivysettings.xml"), "-ivy", str(HERE / "ivy.xml")]
    command += ["-notransitive", "-cache", str(WORK / "cache")]
    command += ["-retrieve", f"{WORK}/[organisation]_[artifact]-[revision].[ext]"]
    with LOG.open("w") as log:
        ivy_run = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
    missing = set(expected_jars()) - set(present_jars(WORK))
    if ivy_run.returncode or missing:
        tail = "".join(LOG.read_text().splitlines(keepends=True)[-15:])
        names = ", ".join(sorted(missing)) or "Ivy failed"
        sys.exit(f"\n{tail}jars: not fetched: {names}. Is Maven Central reachable? See {LOG}, then run `make setup`.")


def install() -> None:
    """Move the jars into place: until the last is there the set is not the list, so an interrupted run is repeated."""
    for old in JARS.glob("*.jar"):
        old.unlink()
    for jar in WORK.glob("*.jar"):
        jar.replace(JARS / jar.name)


def main() -> None:
    jars = expected_jars()
    if present_jars(JARS) == jars:
        return
    started = time.monotonic()
    sys.stdout.write(f"jars: fetching {len(jars)} from Maven Central (about 10 s) ... ")
    sys.stdout.flush()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    resolve()
    install()
    shutil.rmtree(WORK)
    size = sum(jar.stat().st_size for jar in JARS.glob("*.jar"))
    sys.stdout.write(f"{size / 1e6:.1f} MB in {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
