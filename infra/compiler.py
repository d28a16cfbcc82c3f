"""Java sources of tests and benchmarks, compiled when they run: by the compiler of the jars' list, since a JRE has none."""

import subprocess
from pathlib import Path

from sessionlake.jars import cached, load_list
from sessionlake.jars.java import java_command

_COMPILER = "org.eclipse.jdt_ecj-*.jar"


def class_path(listed: Path, sources: list[Path], into: Path) -> str:
    """Compile sources against the jars of a list into a folder; return the class path that runs them.

    RuntimeError with what the compiler said where it refuses them, ConfigError where the jars can't be had.
    """
    folder = cached(load_list(str(listed)))
    jars = sorted(folder.glob("*.jar"))
    command = [java_command(), "-XX:TieredStopAtLevel=1", "-jar", str(next(folder.glob(_COMPILER)))]
    command += ["-17", "-nowarn", "-cp", ":".join(map(str, jars)), "-d", str(into), *map(str, sources)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"java: {sources[0].name} does not compile:\n{done.stdout}{done.stderr}")
    return f"{into}:{folder}/*"
