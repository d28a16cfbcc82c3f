"""The wheel, built from this checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build_wheel(directory: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = directory.glob("sessionlake-*.whl")
    return wheel
