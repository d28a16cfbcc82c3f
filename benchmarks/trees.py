"""The code that a benchmark runs: this checkout, or an older commit of it in a work tree that is gone afterwards."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Tree:
    """A commit's sources and the Python that runs them. The benchmarks' own code is this checkout's for all trees."""

    name: str
    python: str
    source: Path
    packages: str
    """Whose third-party packages the tree runs on: `this environment's`, or `its own`."""

    def environment(self) -> dict[str, str]:
        """Return the variables under which this tree's package is the one imported, by drivers and workers alike.

        PYTHONPATH stands before every environment's own packages, an editable install of another tree included.
        """
        return {**os.environ, "PYTHONPATH": os.pathsep.join((str(self.source), str(ROOT)))}


def this_tree() -> Tree:
    return Tree("ours", sys.executable, ROOT / "src", "this environment's")


@contextmanager
def older(commit: str, work: Path) -> Iterator[Tree]:
    """Give a commit's tree, ready to run; `work` is a folder that the caller removes."""
    checkout = work / "base"
    _run("git", "-C", str(ROOT), "worktree", "add", "--quiet", "--detach", str(checkout), commit)
    try:
        python, packages = sys.executable, "this environment's"
        if not _same_packages(checkout / "uv.lock"):
            python, packages = _own_environment(checkout), "its own"
        tree = Tree("base", python, checkout / "src", packages)
        if not (checkout / "src/sessionlake/jars").exists():
            # Before the package fetched its jars by itself, a script put them into .jars of the checkout.
            _run(python, str(checkout / "infra/setup/jars.py"))
        yield tree
    finally:
        _run("git", "-C", str(ROOT), "worktree", "remove", "--force", str(checkout))


def _same_packages(lock: Path) -> bool:
    """Return whether this environment has every package that the lock has for running, in the locked version.

    Then the older sources run on exactly the packages they would have in an environment of their own.
    """
    locked = {entry["name"]: entry for entry in tomllib.loads(lock.read_text())["package"]}
    waiting, seen = ["sessionlake"], {"sessionlake"}
    while waiting:
        entry = locked[waiting.pop()]
        found = {dependency["name"] for dependency in entry.get("dependencies", ()) if "marker" not in dependency}
        waiting += found - seen
        seen |= found
    return all(_installed(name) == locked[name]["version"] for name in seen - {"sessionlake"})


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _own_environment(checkout: Path) -> str:
    uv = shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(checkout / ".venv")}
    _run(uv, "sync", "--frozen", "--quiet", "--no-default-groups", "--project", str(checkout), env=environment)
    return str(checkout / ".venv/bin/python")


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"bench: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
