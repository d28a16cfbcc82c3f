"""Pipelines on small inputs that a test writes."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import tomli_w
from hypothesis import settings

from sessionlake.config.load import Config, parse_config

_seconds = count(1_000_000_000, 10)


def examples(number: int) -> settings:
    """Return how many examples a test draws: this many where it is to search (`make test-all`), a quarter of them else.

    A few are drawn at least. What is drawn in `make test` is the same each time, so that more of it finds nothing new.
    """
    searches = not settings().derandomize
    return settings(max_examples=number if searches else max(number // 4, min(number, 5)))


def make_config(root: Path, **sections: Any) -> Config:
    """Return a config with small defaults; `sections` override them key by key."""
    raw = _raw(sections)
    (root / "events").mkdir(exist_ok=True)
    return parse_config(raw, root)


def write_config(root: Path, **sections: Any) -> Path:
    """Write what `make_config` would return, for what takes a config's path."""
    (root / "events").mkdir(exist_ok=True)
    file = root / "test.toml"
    file.write_text(tomli_w.dumps(_raw(sections)))
    return file


def _raw(sections: dict[str, Any]) -> dict[str, Any]:
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "session": {"gap": "10 us", "grace": "20 us", "retention": "60 us"},
        "aggregates": {"total": "sum(v)"},
        "expire": {"max_share": 1.0},
    }
    for name, section in sections.items():
        whole = name == "aggregates" or isinstance(section, list)
        raw[name] = section if whole else {**raw.get(name, {}), **section}
    return raw


def write_rows(root: Path, name: str, rows: Sequence[dict[str, Any] | str]) -> Path:
    """Write a file of JSON lines (texts as they are) whose modification time follows those written before."""
    target = root / "events" / name
    temporary = target.with_name(f".{name}")
    temporary.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    moment = next(_seconds)
    os.utime(temporary, (moment, moment))
    temporary.replace(target)
    return target


CORRECTION_NAMES = {"session_key": "key", "session_start": "start_time", "session_end": "end_time"}


def correction_of(session: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return columns of a session's row as those of corrections, and of their `remove` and `put`."""
    return {CORRECTION_NAMES.get(name, name): session[name] for name in names}
