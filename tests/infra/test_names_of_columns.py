"""A name of a user's column becomes a column of Spark's in one place, which quotes it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import sessionlake


def raw(text: str) -> Iterator[int]:
    """Yield the lines that give Spark the names of a table's columns as they are."""
    tree = ast.parse(text)
    named = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr in ("columns", "names")
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "mapInArrow":
            yield node.lineno
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "F.col" and "named(" in ast.unparse(node):
            yield node.lineno
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("select", "groupBy")
        ):
            for part in node.args:
                if isinstance(part, ast.Starred):
                    of = part.value
                    if (isinstance(of, ast.Attribute) and of.attr == "columns") or (
                        isinstance(of, ast.Name) and of.id in named
                    ):
                        yield node.lineno


def test_names_become_columns_in_one_place() -> None:
    root = Path(sessionlake.__file__).parent
    found = {path.relative_to(root).as_posix(): list(raw(path.read_text())) for path in root.rglob("*.py")}
    assert {name for name, lines in found.items() if lines} == {"warehouse/spark_columns.py"}
    assert list(
        raw(
            "x = rows.select(*rows.columns)\nnames = rows.columns\nrows.select(*names)\nF.col(SPARK.named(n))\nrows.mapInArrow(f, s)"
        )
    ) == [1, 3, 4, 5]
