"""The classes of sections and aggregates, by attribute; names.pyi has their arguments for type checkers (`python -m tests.define.stub`)."""

from typing import Any


def __getattr__(name: str) -> Any:
    from sessionlake.define.classes import classes  # noqa: PLC0415 (the package's other names need no pydantic)

    if name not in classes():
        raise AttributeError(f"module 'sessionlake' has no attribute {name!r}")
    return classes()[name]
