"""The size of the house, and of its knots. A budget only goes down; an issue may name an allowance."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

from tests.infra.infra_files import ROOT
from tests.infra.prose import prose, rate

SRC = ROOT / "src" / "sessionlake"
FILES, LINES = 767, 102_554
ANSWERS = 285
"""Methods of operators that answer one of the INTERFACES."""
CIRCLE = 2
"""Modules of the largest circle of imports, those for type checkers and within functions among them."""
CHAIN = 22
"""Modules of the longest chain of imports that stand at the top of a module."""
ARGUMENTS = 24
"""Arguments of a function."""
BARE_TRICKS = 74
"""Lines with one of TRICKS, without a comment there or in the two lines above."""
WORDS = {r"\bof\b": 494, r"\bthat\b": 244, r"\bones?\b": 95, r"\b(?:its|their)\b": 140, r"\bthose\b": 23}
"""By pattern the uses in 10,000 words of docstrings and comments."""
INTERFACES = {
    "OperatorSection": "config/sections.py",
    "Changelog": "warehouse/changelog.py",
    "Kind": "stream/kind.py",
    "Operator": "engine/operator.py",
}
"""By class its module: what every operator answers."""
TRICKS = re.compile(r"\b(?:argsort|searchsorted|cumsum|reduceat)\(")


@cache
def parsed() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text()) for file in sorted(SRC.rglob("*.py"))}


def methods(of: ast.ClassDef) -> set[str]:
    return {node.name for node in of.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")}


def classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_files_and_lines() -> None:
    assert len(parsed()) <= FILES
    assert sum(len(file.read_text().splitlines()) for file in parsed()) <= LINES


def test_answers_to_the_wide_interfaces() -> None:
    asked = set[str]()
    for name, file in INTERFACES.items():
        (interface,) = (one for one in classes(parsed()[SRC / file]) if one.name == name)
        asked |= methods(interface)
    answering = [tree for file, tree in parsed().items() if (SRC / "operators") in file.parents]
    answering.append(parsed()[SRC / INTERFACES["Changelog"]])
    each = (one for tree in answering for one in classes(tree) if one.name not in INTERFACES)
    assert sum(len(methods(one) & asked) for one in each) <= ANSWERS


def test_circles_of_imports() -> None:
    graph = grimp.build_graph("sessionlake", exclude_type_checking_imports=False)
    edges = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    reached = {module: reachable(edges, module) for module in edges}
    # Modules that reach each other are in one circle.
    circles = [{other for other in each if module in reached[other]} for module, each in reached.items()]
    largest = max(circles, key=len)
    assert len(largest) <= CIRCLE, sorted(largest)


def reachable(edges: Mapping[str, set[str]], start: str) -> set[str]:
    """Return the modules that a module imports, also by others; itself only if it is in a circle."""
    found, ahead = set[str](), [start]
    while ahead:
        new = edges[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_chains_of_imports() -> None:
    modules = {
        ".".join(("sessionlake", *file.relative_to(SRC).with_suffix("").parts)).removesuffix(".__init__"): tree
        for file, tree in parsed().items()
    }

    @cache
    def chain(module: str) -> tuple[str, ...]:
        ahead = (chain(name) for name in imported_at_top(modules[module]) if name in modules and name != module)
        return (module, *max(ahead, key=len, default=()))

    longest = max(map(chain, modules), key=len)
    assert len(longest) <= CHAIN, longest


def imported_at_top(tree: ast.Module) -> set[str]:
    """Return the names of modules that a module imports when it is imported; of `from a import b` both a.b and, if b is no module, a."""
    found = set[str]()
    for node in tree.body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {node.module} if is_file(node.module) else set()
    return found


def is_file(module: str) -> bool:
    return (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").exists()


def test_arguments_of_a_function() -> None:
    counted = {
        f"{file.relative_to(SRC)}: {node.name}": len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs)
        for file, tree in parsed().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    worst = max(counted, key=lambda name: counted[name])
    assert counted[worst] <= ARGUMENTS, worst


def test_reasons_of_index_tricks() -> None:
    bare = [
        f"{file.relative_to(SRC)}:{i + 1}"
        for file in parsed()
        for lines in (file.read_text().splitlines(),)
        for i, line in enumerate(lines)
        if TRICKS.search(line)
        and "#" not in line
        and not any(x.strip().startswith("#") for x in lines[max(0, i - 2) : i])
    ]
    assert len(bare) <= BARE_TRICKS, bare


def test_words_of_the_grammar() -> None:
    texts = prose("code")
    for pattern, most in WORDS.items():
        assert rate(pattern, texts) <= most, pattern
