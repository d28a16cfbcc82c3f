"""The distributions, built from this checkout or another tree."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(target: str, directory: Path, tree: Path = ROOT) -> Path:
    """Build a wheel or an sdist of a tree into a new directory; return it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(directory)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=120)
    (built,) = directory.glob("sessionlake-*.whl" if target == "wheel" else "sessionlake-*.tar.gz")
    return built


def build_wheel(directory: Path) -> Path:
    return build("wheel", directory)
