"""A kind of source is named by its modules and its entry: elsewhere nothing asks which kind a source is."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import sessionlake
from sessionlake.config.operators import named
from sessionlake.config.source import SourceSection
from sessionlake.config.sources import SOURCES, Kind

ROOT = Path(sessionlake.__file__).parent
OWN = ("sources/", "config/sources.py", "propose/")
"""The sources, their entries, and the wizard, which writes the section of each kind."""


def asks(text: str) -> Iterator[int]:
    """Yield the lines that compare something with the name of a kind, or look it up by that name."""
    for node in ast.walk(ast.parse(text)):
        parts: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Dict):
            parts = [key for key in node.keys if key is not None]
            if sum(map(is_kind, parts)) < 2:  # a dictionary may have a key "files" that is none of ours
                continue
        for part in parts:
            among = getattr(part, "elts", ())
            if is_kind(part) or (among and all(map(is_kind, among))):
                yield node.lineno


def is_kind(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in SOURCES


def modules() -> list[str]:
    names = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
    return [name for name in names if not name.startswith(OWN)]


def test_no_module_asks_for_a_kind() -> None:
    assert [f"{name}:{line}" for name in modules() for line in asks((ROOT / name).read_text())] == []


@pytest.mark.parametrize(
    "text",
    [
        'x = source.kind == "kafka"',
        'x = source.kind in ("delta", "files")',
        'x = {"files": 1, "delta": 2}[source.kind]',
        'match source.kind:\n    case "kafka":\n        pass',
    ],
)
def test_an_ask_is_found(text: str) -> None:
    assert list(asks(text))


def test_the_kinds_are_the_entries() -> None:
    assert get_args(Kind) == tuple(SOURCES)


@pytest.mark.parametrize("kind", SOURCES)
def test_the_places_of_an_entry_are_there(kind: str) -> None:
    entry = SOURCES[kind]
    assert all(callable(named(place)) for place in (entry.check, entry.source, entry.without_spark))
    assert named(entry.source).name == kind
    assert set(entry.keys) <= set(SourceSection.model_fields)
