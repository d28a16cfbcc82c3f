"""Jobs, the stream and the warehouse serve any operator: they import none, and write no operator's name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sessionlake
from sessionlake.config.operators import OPERATORS

ROOT = Path(sessionlake.__file__).parent
NEUTRAL = sorted(path for room in ("jobs", "stream", "warehouse") for path in (ROOT / room).rglob("*.py"))
PACKAGES = {entry.kind.partition(":")[0].rpartition(".")[0] for entry in OPERATORS.values()}
"""The operators' folders, as packages."""
WORDS = {"count", "table"}
"""Operators' names that are also words of the tables: they are an operator's only if something is compared with them."""


def modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [name.name for name in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
    return [node.value.partition(":")[0]] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def findings(source: str) -> Iterator[str]:
    """Yield the operators that a module imports, names by path, or writes as a name."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for module in modules(node):
            if any(module == package or module.startswith(f"{package}.") for package in PACKAGES):
                yield module
        if isinstance(node, ast.Constant) and node.value in OPERATORS and node.value not in WORDS:
            yield f"line {node.lineno}: {node.value!r}"
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and part.value in WORDS:
                    yield f"line {part.lineno}: compared with {part.value!r}"


@pytest.mark.parametrize("path", NEUTRAL, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_operator_is_known(path: Path) -> None:
    assert sorted(findings(path.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "from sessionlake.operators.sessions.kind import Sessions",
        "from sessionlake.operators import keyed",
        "import sessionlake.operators.windows.spec",
        "named('sessionlake.operators.joins.kind:Joins')",
        "if config.operator == 'table': pass",
        "REASONS = {'join': 'no'}",
        "if config.operator in ('count',): pass",
    ],
)
def test_what_knows_an_operator_is_found(source: str) -> None:
    assert list(findings(source))


@pytest.mark.parametrize("source", ["from sessionlake.stream.kinds import kind_of", "row['count']", "'sessions'"])
def test_what_serves_any_operator_is_not(source: str) -> None:
    assert not list(findings(source))
