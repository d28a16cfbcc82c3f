"""Fetch the jars that a list (ivy.xml) names, with the Ivy that Spark ships; do nothing where they are there.

Spark's go to .jars/; with the argument `kafka` those of a Kafka broker, for tests and `make kafka`, to .kafka/jars/; with
`s3`, `adls` or `gcs` those that Spark needs for that object store to .jars/s3/ and so on; with `openlineage` OpenLineage's
listener for Spark to .openlineage/jars/.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
STORES = ROOT / "infra" / "object-stores"


@dataclass(frozen=True)
class JarSet:
    """A list of jars and the folder that they go to."""

    listed: Path
    folder: Path
    takes: str
    source: Path | None = None
    """A class in Scala that is compiled into a jar of its own, with the compiler that Spark ships."""

    @property
    def work(self) -> Path:
        """Where Ivy works; gone once all is there."""
        return self.folder / "work"

    @property
    def log(self) -> Path:
        """Ivy's output."""
        return self.folder / "ivy.log"

    def expected(self) -> list[str]:
        """File names of the listed jars."""
        dependencies = ET.parse(self.listed).iter("dependency")
        fetched = [f"{d.attrib['org']}_{d.attrib['name']}-{d.attrib['rev']}.jar" for d in dependencies]
        return sorted(fetched + [jar.name for jar in [self.compiled] if jar])

    @property
    def compiled(self) -> Path | None:
        """The jar of `source`, named after its content, so that a changed source is compiled again."""
        if self.source is None:
            return None
        return (
            self.work / f"sessionlake_{self.source.stem}-{hashlib.sha256(self.source.read_bytes()).hexdigest()[:8]}.jar"
        )


SETS = {
    "spark": JarSet(HERE / "ivy.xml", ROOT / ".jars", "15 s"),
    "kafka": JarSet(ROOT / "infra" / "kafka" / "ivy.xml", ROOT / ".kafka" / "jars", "40 s"),
    "s3": JarSet(STORES / "s3" / "ivy.xml", ROOT / ".jars" / "s3", "40 s", STORES / "s3" / "ConditionalLogStore.scala"),
    "adls": JarSet(STORES / "adls" / "ivy.xml", ROOT / ".jars" / "adls", "10 s"),
    "gcs": JarSet(STORES / "gcs" / "ivy.xml", ROOT / ".jars" / "gcs", "10 s"),
    "openlineage": JarSet(
        ROOT / "infra" / "observability" / "openlineage" / "ivy.xml", ROOT / ".openlineage" / "jars", "10 s"
    ),
}


def present_jars(folder: Path) -> list[str]:
    return sorted(jar.name for jar in folder.glob("*.jar"))


def resolve(jars: JarSet) -> None:
    """Run Ivy into the work folder, then compile; exit with the log's last lines where either fails."""
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else "java"
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        sys.exit("jars: no pyspark beside this Python; run `make setup`")
    shipped = Path(pyspark.origin).parent / "jars"
    command = [java, "-jar", str(next(shipped.glob("ivy-*.jar"))), "-settings", str(HERE / "ivysettings.xml")]
    command += ["-ivy", str(jars.listed), "-notransitive", "-cache", str(jars.work / "cache")]
    command += ["-retrieve", f"{jars.work}/[organisation]_[artifact]-[revision].[ext]"]
    with jars.log.open("w") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
        if jars.compiled and not done.returncode:
            path = f"{shipped}/*:{jars.work}/*"
            command = [
                java,
                "-cp",
                path,
                "scala.tools.nsc.Main",
                "-usejavacp",
                "-d",
                str(jars.compiled),
                str(jars.source),
            ]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False)
    missing = set(jars.expected()) - set(present_jars(jars.work))
    if done.returncode or missing:
        tail = "".join(jars.log.read_text().splitlines(keepends=True)[-15:])
        names = ", ".join(sorted(missing)) or "Ivy failed"
        sys.exit(
            f"\n{tail}jars: not fetched: {names}. Is Maven Central reachable? See {jars.log}, then run `make setup`."
        )


def install(jars: JarSet) -> None:
    """Move the jars into place: until the last is there the set is not the list, so an interrupted run is repeated."""
    for old in jars.folder.glob("*.jar"):
        old.unlink()
    for jar in jars.work.glob("*.jar"):
        jar.replace(jars.folder / jar.name)


def main(name: str) -> None:
    if name not in SETS:
        sys.exit(f"jars: {name!r} is no set of jars; pass one of {', '.join(SETS)}")
    jars = SETS[name]
    names = jars.expected()
    if present_jars(jars.folder) == names:
        return
    started = time.monotonic()
    sys.stdout.write(f"jars: fetching {len(names)} for {name} from Maven Central (about {jars.takes}) ... ")
    sys.stdout.flush()
    shutil.rmtree(jars.work, ignore_errors=True)
    jars.work.mkdir(parents=True)
    resolve(jars)
    install(jars)
    shutil.rmtree(jars.work)
    size = sum(jar.stat().st_size for jar in jars.folder.glob("*.jar"))
    sys.stdout.write(f"{size / 1e6:.1f} MB in {time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["spark"]))
