"""Validation results and Data Docs of the job `quality` that hold a key: expectations may fetch examples of values."""

import re
from pathlib import Path

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.forget.keys import Keys
from sessionlake.jobs.forget.texts import in_document

_TEXTS = (".json", ".html")


def documents_dir(config: Config, data_docs: Path | None) -> Path:
    """Return the directory in which `quality` keeps its files on this machine."""
    return data_docs or config.data_docs


def find_documents(folder: Path, keys: Keys) -> list[Path]:
    """Return the files that hold a key."""
    patterns = [re.compile(in_document(key)) for key in keys.values]
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in _TEXTS and file.is_file()]
    return [file for file in files if _holds(file, patterns)]


def erase_documents(folder: Path, keys: Keys) -> int:
    """Remove the files that hold a key, whole: results can be had again, by `quality`; return how many."""
    found = find_documents(folder, keys)
    for file in found:
        failpoints.hit("forget_before_document")
        file.unlink(missing_ok=True)
    return len(found)


def _holds(file: Path, patterns: list[re.Pattern[str]]) -> bool:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:  # a run of quality puts another in its place
        return False
    return any(pattern.search(text) for pattern in patterns)
