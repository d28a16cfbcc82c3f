"""A processor's pipeline through Spark: its config, and its files of rows."""

from pathlib import Path
from typing import Any

from sessionlake.config.load import Config, parse_config
from tests.operators.process import processors

OUTPUT = {"text": "string", "number": "long", "other": "double", "flag": "boolean"}
TYPES = {"text": str, "number": int, "other": float, "flag": bool}
FILES = [
    [("a", 0, "a", 5), ("b", 2, "b", 5), ("a", 3, "b", 5)],
    [("a", 4, "c", 0), ("c", 4, "a", 2), ("a", 20, "a", 7), ("b", 21, "c", 3)],
    [("d", 35, "a", 9), ("b", 36, "b", 9)],
    [("a", 90, "a", 9)],
]


def raw_of(of: str, **pipeline: Any) -> dict[str, Any]:
    """Return the content of the config of a pipeline of one of the tests' processors."""
    return {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2, **pipeline},
        "source": {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "process": {
            "class": f"{processors.__name__}:{of}",
            "columns": ["kind", "value"],
            "retention": "30 us",
            "output": OUTPUT,
        },
        "quality": {"max_late_rate": 1.0, "max_dead_rate": 1.0},
        "compact": {"safety": "0 seconds"},
    }


def config_of(root: Path, of: str, **pipeline: Any) -> Config:
    """Return the config of such a pipeline below a directory."""
    (root / "events").mkdir(exist_ok=True)
    return parse_config(raw_of(of, **pipeline), root)


def rows_of(number: int) -> list[dict[str, Any]]:
    return [dict(zip(("key", "time_us", "kind", "value"), row, strict=True)) for row in FILES[number]]
