"""Nobody outside of an operator's folder and its entry names it: a new operator is a folder and an entry."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from sessionlake.config.operators import OPERATORS

SOURCE = Path(__file__).parents[2] / "src" / "sessionlake"
CLOSED = ("operators/", "config/operators.py")
SHARED = ("cleanups", "registry", "run", "shared", "views")
"""Modules of `sessionlake.operators` that are no operator's."""
NAMES = {*OPERATORS, *(entry.section for entry in OPERATORS.values())}
MODELS = {entry.model.partition(":")[0] for entry in OPERATORS.values()}
CLASSES = {
    node.name
    for module in MODELS
    for node in ast.parse((SOURCE.parent / f"{module.replace('.', '/')}.py").read_text()).body
    if isinstance(node, ast.ClassDef)
}
"""The classes of the operators' sections."""

ALLOWED = {
    "__init__.py": ("sessionlake.operators", "the public names of definitions in Python"),
    "client.py": ("'session'", "the public methods of a client for sessions"),
    "stores.py": ("'session'", "'window'", "kinds of stores, which are called as in Kafka Streams"),
    "examples/": ("'count'", "'table'", "pipelines as users write them"),
    "examples/pauses.py": ("sessionlake.operators", "a class as users write it, with its public import"),
    "cli/fast_start.py": ("'session'", "a pipeline as users write it, by which Spark's classes are found"),
    "propose/": (
        "sessionlake.operators",
        "SessionSection",
        "a wizard for sessions, windows and tables: each is measured in its own way",
    ),
    "propose/query/": (
        "'group'",
        "'join'",
        "'table'",
        "'window'",
        "SessionSection",
        "WindowSection",
        "words of Spark's SQL, and names that columns can't have",
    ),
    "aggregates/": ("'count'", "an aggregate"),
    "columnar/": ("'count'", "a field of records"),
    "columnar/spark_sql/": ("'group'", "an argument of a function of SQL"),
    "store/": ("'count'", "a field of what is stored"),
    "cli/rows.py": ("'table'", "a form of printed rows"),
    "observe/": ("'table'", "a label of metrics"),
    "quality/": ("'table'", "a column of results"),
    "warehouse/schemas.py": ("'table'", "a column of results"),
    "jobs/forget/": ("'count'", "'table'", "columns of a search through tables"),
    "jobs/compact/": ("'count'", "a column of Spark"),
    "jobs/registry.py": ("'table'", "an option"),
    "standalone/contents.py": ("'count'", "'join'", "'window'", "sections of the configs that it makes"),
    "standalone/": ("sessionlake.operators", "the documented classes for one operator each; `Pipeline` runs any"),
    "testing/": (
        "sessionlake.operators",
        "the documented harnesses for one operator each; `Harness` runs any",
    ),
}
"""By module or folder the beginnings of names that it may have, and at last the reason."""


def named_in(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line of each operator that is named, and how."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text in NAMES:
                yield node.lineno, repr(text)
            case ast.ImportFrom(module=str(module)) if _is_operators(module):
                yield node.lineno, module
            case ast.Import(names=names):
                yield from ((node.lineno, name.name) for name in names if _is_operators(name.name))
            case ast.Constant(value=str(text)) if _is_operators(text.partition(":")[0]):
                yield node.lineno, text
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in CLASSES:
                yield node.lineno, name


def _is_operators(module: str) -> bool:
    parts = module.split(".")
    return parts[:2] == ["sessionlake", "operators"] and len(parts) > 2 and parts[2] not in SHARED


@cache
def found() -> list[tuple[str, int, str]]:
    """Return the modules of the source that name operators, with line and name."""
    files = {file.relative_to(SOURCE).as_posix(): file for file in sorted(SOURCE.rglob("*.py"))}
    read = {module: ast.parse(file.read_text()) for module, file in files.items() if not module.startswith(CLOSED)}
    return [(module, line, name) for module, tree in read.items() for line, name in named_in(tree)]


def is_allowed(module: str, name: str) -> bool:
    return any(module.startswith(place) and name.startswith(tuple(begin)) for place, (*begin, _) in ALLOWED.items())


def test_only_what_is_allowed_names_an_operator() -> None:
    named = [f"{module}:{line}: {name}" for module, line, name in found() if not is_allowed(module, name)]
    assert not named, "ask the operator's entry (`config.operators`) in place of naming it:\n" + "\n".join(named)


def test_what_is_allowed_is_needed() -> None:
    idle = [
        f"{place}: {beginning}"
        for place, (*beginnings, _) in ALLOWED.items()
        for beginning in beginnings
        if not any(module.startswith(place) and name.startswith(beginning) for module, _, name in found())
    ]
    assert not idle, f"these name no operator any more; remove them from the lists above: {', '.join(idle)}"


@pytest.mark.parametrize(
    "code",
    [
        "config.operator == 'session'",
        "{'join': 1}",
        "config.require('table')",
        "from sessionlake.operators.keyed.section import RESERVED",
        "import sessionlake.operators.counts.kind",
        "from sessionlake.operators.windows import section",
        "place = 'sessionlake.operators.joins.quality:CHECKED'",
        "isinstance(section, WindowSection)",
    ],
)
def test_an_operator_that_is_named_is_found(code: str) -> None:
    assert list(named_in(ast.parse(code)))


@pytest.mark.parametrize(
    "code", ["'sessions'", "from sessionlake.operators.views import read_live", "config.section.grace_us"]
)
def test_other_words_are_none(code: str) -> None:
    assert not list(named_in(ast.parse(code)))
