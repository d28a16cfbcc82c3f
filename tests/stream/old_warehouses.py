"""Warehouses that earlier versions have written (tests/fixtures)."""

import tarfile
from pathlib import Path

from sessionlake.config.load import Config
from tests.support import make_config

FIXTURES = Path(__file__).parents[1] / "fixtures"


def unpack(root: Path, archive: Path) -> None:
    """Unpack a warehouse; its checkpoint then knows the source files, if it has some, by their new place."""
    with tarfile.open(archive) as files:
        files.extractall(root, filter="data")
    if not (root / "at").exists():
        return
    before = (root / "at").read_text()
    for file in (root / "warehouse" / "_checkpoints").rglob("*"):
        if file.is_file() and not file.name.endswith(".crc") and before in (text := file.read_text()):
            file.write_text(text.replace(before, str(root)))
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def unpacked(root: Path, archive: Path) -> Config:
    """Return the config of a warehouse with traces of jobs, which it unpacks."""
    unpack(root, archive)
    return make_config(root, pipeline={"archive": True})
