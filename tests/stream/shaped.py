"""Shaped events of each operator: the config of the shape, of the operators, and the columns."""

from collections.abc import Mapping
from typing import Any

SOURCE = {"kind": "files", "path": "events", "format": "json"}
EVENT = {"key": "user", "time": "at", "time_unit": "us"}
SHAPE = {
    "where": "type in ('buy', 'click') and cost < 90",
    "columns": {
        "price": "cast(price as double)",
        "cost": "price * n",
        "user": "concat('<', user, '>')",
        "at": "at + 5",
        "big": "cost > 20",
    },
}
SCHEMA = {"user": "string", "at": "long", "type": "string", "price": "string", "n": "long"}
SHAPED_SCHEMA = {**SCHEMA, "price": "double", "cost": "double", "big": "boolean"}
AGGREGATES = {"n": "count()", "cost": "sum(cost)", "dear": "max(price)", "last": "last(big)"}
OPERATORS: Mapping[str, Mapping[str, Any]] = {
    "sessions": {
        "session": {"gap": "10 seconds", "grace": "5 seconds", "retention": "60 seconds"},
        "aggregates": AGGREGATES,
    },
    "own gaps": {
        "session": {"gap": "10 seconds", "max_gap": "20 seconds", "gap_by": "if(big, interval 20 seconds, null)"},
        "aggregates": AGGREGATES,
    },
    "windows": {
        "window": {"kind": "hopping", "size": "20 seconds", "advance": "10 seconds", "retention": "1 hour"},
        "aggregates": AGGREGATES,
    },
    "counts": {
        "window": {"by": "count", "kind": "tumbling", "size": 3, "retention": "1 hour", "retention_count": 30},
        "aggregates": AGGREGATES,
    },
    "groups": {"group": {}, "aggregates": AGGREGATES},
    "table": {"table": {"columns": ["cost", "price", "type"], "delete_when": "big and type = 'click'"}},
    "all columns": {"table": {}},
    "process": {
        "process": {
            "class": "tests.operators.process.processors:Order",
            "columns": ["cost", "big"],
            "output": {"text": "string", "number": "long"},
            "retention": "1 hour",
        }
    },
}
