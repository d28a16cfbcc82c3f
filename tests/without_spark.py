"""An environment in which the packages of the extra `spark` look as if they were not installed, and commands in it."""

import os
import subprocess
import sys
from pathlib import Path

HIDING = '''
import sys

MODULES, PACKAGES = {"pyspark", "delta", "py4j", "pandas"}, {"pyspark", "delta-spark", "py4j", "pandas"}


class Hiding:
    """A finder of modules that does not find some."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *more):
        return None if name.partition(".")[0] in MODULES else self.finder.find_spec(name, *more)

    def find_distributions(self, context):
        found = getattr(self.finder, "find_distributions", None)
        return iter(()) if context.name in PACKAGES or found is None else found(context)

    def __getattr__(self, name):
        return getattr(self.finder, name)


sys.meta_path[:] = map(Hiding, sys.meta_path)
'''


def environment(root: Path) -> dict[str, str]:
    """Return the variables; `root` is an empty directory."""
    (root / "sitecustomize.py").write_text(HIDING)
    there = {name: text for name, text in os.environ.items() if not name.startswith(("JAVA_HOME", "SPARK_HOME"))}
    # A PATH without Java, too.
    return {**there, "PYTHONPATH": str(root), "PATH": str(Path(sys.executable).parent), "XDG_CACHE_HOME": str(root)}


def call(root: Path, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Call the command in `root`, whose directory `hiding` is for the environment."""
    (root / "hiding").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "sessionlake", "--quiet", *words]
    return subprocess.run(
        command,
        cwd=root,
        env=environment(root / "hiding"),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
