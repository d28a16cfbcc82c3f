"""Copies of a pipeline that was run once, each of which goes on by itself."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sessionlake.config.load import Config
from tests.support import make_config


def copy_pipeline(
    original: Path, root: Path, make: Callable[..., Config] = make_config, **sections: dict[str, Any]
) -> Config:
    """Copy a pipeline's directory; its checkpoint then knows the source files by their new place."""
    shutil.copytree(original, root, dirs_exist_ok=True)
    for file in (root / "warehouse" / "_checkpoints").rglob("*"):
        if file.is_file() and not file.name.endswith(".crc"):
            text = file.read_text()
            if str(original) in text:
                file.write_text(text.replace(str(original), str(root)))
                file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return make(root, **sections)
