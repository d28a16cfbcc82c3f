"""Downloads by the Ivy that Spark ships, which can find Maven Central; the jars are checked against the list's hashes."""

import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from sessionlake.errors import ConfigError
from sessionlake.jars.java import java_command, pyspark_home, require_java
from sessionlake.jars.lists import Jar, JarList

SETTINGS_VARIABLE = "SESSIONLAKE_IVY_SETTINGS"
"""An optional variable: the path of an ivysettings.xml with a repository in place of Maven Central, for example a company's mirror."""
ATTEMPTS = 3
OnBytes = Callable[[int], None]
Ivy = Callable[[Sequence[Jar], Path, OnBytes], None]
_PATTERN = "[organisation]_[artifact]-[revision](-[classifier]).[ext]"


def fetch(jars: JarList, work: Path, on_bytes: OnBytes, *, ivy: Ivy | None = None, pause_s: float = 1.0) -> Path:
    """Fetch a list's jars into `work`, and return the folder there that holds them, each with the hash of the list.

    `work` may be left from an interrupted call: whole jars in it are not fetched again. `on_bytes` receives the number
    of bytes that are there. ConfigError if a jar can't be fetched, or has another hash than the list.
    """
    folder = work / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    for attempt in range(ATTEMPTS):
        missing = [jar for jar in jars.jars if not (folder / jar.file).exists()]
        if not missing:
            break
        time.sleep(pause_s * attempt)
        (ivy or run_ivy)(missing, work, on_bytes)
        wrong = [said for jar in missing for said in _take(jar, work, folder)]
    missing = [jar for jar in jars.jars if not (folder / jar.file).exists()]
    if wrong:
        raise ConfigError(
            f"jars: {wrong[0]}; it was not used. Check the proxy or mirror between this machine and Maven Central"
        )
    if missing:
        raise ConfigError(_not_had(missing, work))
    if jars.compiled:
        _compile(jars.sources, folder, folder / jars.compiled, work)
    return folder


def run_ivy(missing: Sequence[Jar], work: Path, on_bytes: OnBytes) -> None:
    """Let Ivy fetch jars into work/got. Jars that it could not get are missing there, with the reason in work/ivy.log."""
    listed, got, cache = work / "ivy.xml", work / "got", work / "ivy"
    listed.write_text(_ivy_xml(missing))
    settings = os.environ.get(SETTINGS_VARIABLE) or str(Path(__file__).with_name("ivysettings.xml"))
    ivy = next((pyspark_home() / "jars").glob("ivy-*.jar"))
    command = [java_command(), *proxy_options(), "-jar", str(ivy)]
    command += ["-settings", settings, "-ivy", str(listed), "-notransitive", "-cache", str(cache)]
    command += ["-retrieve", f"{got}/{_PATTERN}"]
    with (work / "ivy.log").open("w") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            while True:
                try:
                    process.wait(0.2)
                    break
                except subprocess.TimeoutExpired:
                    on_bytes(_size(cache))
        finally:
            process.kill()
            process.wait()


def proxy_options() -> list[str]:
    """Return Java's options for the proxy in HTTPS_PROXY, as pip reads it: Java does not read that variable."""
    proxy = urlsplit(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy") or "")
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 80}"]


def _take(jar: Jar, work: Path, folder: Path) -> list[str]:
    """Move a received jar into the folder of checked jars; remove and report a wrong one."""
    got = work / "got" / jar.file
    if not got.exists():
        return []
    with got.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest == jar.sha256:
        got.replace(folder / jar.file)
        return []
    got.unlink()
    # Else Ivy would take it from there again.
    shutil.rmtree(work / "ivy", ignore_errors=True)
    return [f"{jar.name} came with SHA-256 {digest}, but {jar.sha256} is pinned"]


def _compile(sources: Sequence[Path], folder: Path, jar: Path, work: Path) -> None:
    half = work / "compiled.jar"
    command = [java_command(), "-cp", f"{pyspark_home()}/jars/*:{folder}/*", "scala.tools.nsc.Main", "-usejavacp"]
    command += ["-d", str(half), *map(str, sources)]
    with (work / "ivy.log").open("a") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
    if done.returncode or not half.exists():
        raise ConfigError(f"jars: {jar.name} could not be compiled; see {log.name}")
    half.replace(jar)


def _ivy_xml(jars: Sequence[Jar]) -> str:
    lines = []
    for jar in jars:
        organisation, name, revision, *classifiers = jar.name.split(":")
        artifacts = [f'<artifact name={quoteattr(name)} type="jar" m:classifier={quoteattr(c)}/>' for c in classifiers]
        dependency = f"<dependency org={quoteattr(organisation)} name={quoteattr(name)} rev={quoteattr(revision)}>"
        lines.append(f"{dependency}{''.join(artifacts)}</dependency>")
    space = 'version="2.0" xmlns:m="http://ant.apache.org/ivy/maven"'
    return (
        f'<ivy-module {space}><info organisation="sessionlake" module="jars"/>'
        f'<dependencies defaultconf="default">{"".join(lines)}</dependencies></ivy-module>'
    )


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*.jar*"):
        with suppress(OSError):  # Ivy has renamed it
            total += file.stat().st_size
    return total


def _not_had(missing: Sequence[Jar], work: Path) -> str:
    require_java()
    names = ", ".join(jar.name for jar in missing[:2]) + (f" and {len(missing) - 2} more" if missing[2:] else "")
    return (
        f"jars: {names} could not be fetched; is Maven Central reachable? (Ivy's log: {work / 'ivy.log'}) Without a network: run "
        f"`sessionlake jars --to DIR` on a machine with one, and set SESSIONLAKE_JARS to a copy of DIR"
    )
