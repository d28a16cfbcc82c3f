"""The imports of the source: no circle of folders, a bound on the longest chain, and a folder for each operator."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from sessionlake.config.operators import OPERATORS
from tests.infra.infra_files import ROOT

SOURCE = ROOT / "src"
LONGEST_CHAIN = 22
"""Modules in the longest chain of imports at module level. Lower it if the chain gets shorter."""
LIBRARIES = {"shared"}
"""Folders under operators that are no operators."""


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in SOURCE.rglob("*.py")}
FOLDERS = {name for name, path in MODULES.items() if path.name == "__init__.py"}


def statements(node: ast.AST, *, deferred: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports of a module; those in functions if they are asked for, and never those for type checkers alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        elif deferred or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from statements(child, deferred=deferred)


@cache
def imports(*, deferred: bool) -> Mapping[str, frozenset[str]]:
    """Return the modules of the package that each module imports."""
    found = {}
    for name, path in MODULES.items():
        named = set()
        for statement in statements(ast.parse(path.read_text()), deferred=deferred):
            if isinstance(statement, ast.Import):
                named |= {alias.name for alias in statement.names}
            else:
                inner = {alias.name: f"{statement.module}.{alias.name}" for alias in statement.names}
                named |= {place if place in MODULES else str(statement.module) for place in inner.values()}
        found[name] = frozenset(named & MODULES.keys()) - {name}
    return found


def children(folder: str) -> dict[str, set[str]]:
    """Return the imports between the children of a folder, its modules and its subfolders; a child stands for all within it."""
    found: dict[str, set[str]] = {}
    for module, others in imports(deferred=True).items():
        for other in others:
            if module.startswith(f"{folder}.") and other.startswith(f"{folder}."):
                one, two = (name.removeprefix(f"{folder}.").partition(".")[0] for name in (module, other))
                if one != two:
                    found.setdefault(one, set()).add(two)
    return found


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return all that a node leads to, itself only by a circle."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph.get(ahead.pop(), set()) - found
        found |= new
        ahead += new
    return found


def folders_in_circles(folder: str, graph: Mapping[str, set[str]]) -> set[str]:
    """Return the subfolders that import themselves through other children of their folder."""
    return {f"{folder}.{child}" for child in graph if f"{folder}.{child}" in FOLDERS and child in reached(graph, child)}


def test_no_folders_import_one_another_in_a_circle() -> None:
    assert len(FOLDERS) > 20
    assert not {circle for folder in FOLDERS for circle in folders_in_circles(folder, children(folder))}


def test_a_circle_of_folders_is_found() -> None:
    operators = "sessionlake.operators"
    straight = {"windows": {"shared"}, "counts": {"shared"}, "registry": {"run"}, "run": {"registry"}}
    assert not folders_in_circles(operators, straight)
    circle = {**straight, "windows": {"counts"}, "counts": {"run"}, "run": {"windows"}}
    assert folders_in_circles(operators, circle) == {f"{operators}.windows", f"{operators}.counts"}


def test_chains_of_imports_stay_short() -> None:
    graph = imports(deferred=False)

    @cache
    def chain(module: str) -> tuple[str, ...]:
        return max(((module, *chain(other)) for other in graph[module]), key=len, default=(module,))

    longest = max(map(chain, graph), key=len)
    assert len(longest) <= LONGEST_CHAIN, " -> ".join(longest)


def test_each_folder_under_operators_is_an_operator_or_a_library() -> None:
    folders = {path.parent.name for path in (SOURCE / "sessionlake/operators").glob("*/__init__.py")}
    assert folders == LIBRARIES | {entry.kind.split(".")[2] for entry in OPERATORS.values()}
