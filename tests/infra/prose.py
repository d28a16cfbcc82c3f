"""The prose of modules and pages: docstrings, comments, errors."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.infra.infra_files import ROOT

SOURCES = sorted((ROOT / "src" / "sessionlake").rglob("*.py"))
PAGES = [page for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]) if page.name != "CHANGELOG.md"]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)")
DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|fmt:|pragma|!)")
SHOWN = frozenset(["Job", "Option", "Problem", "argument", "option", "show_warnings", "warn", "warning"])
"""Calls whose texts users see besides errors: problems of a config, warnings, and the help of commands and options."""


def prose_of_code(text: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module, code in backticks removed."""
    for node in ast.walk(ast.parse(text)):
        for child in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if (
                isinstance(child, ast.Expr)
                and isinstance(child.value, ast.Constant)
                and isinstance(child.value.value, str)
            ):
                yield re.sub(r"^\s*(?:>>>|\.\.\.).*$", "", child.value.value, flags=re.MULTILINE)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            yield token.string.lstrip("# ")


def prose_of_errors(text: str) -> Iterator[str]:
    """Yield the texts that users see of calls: those of classes named ...Error and of `SHOWN`."""
    for node in ast.walk(ast.parse(text)):
        called = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
        if called.endswith("Error") or called in SHOWN:
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


@cache
def prose(kind: str) -> dict[Path, str]:
    """Return the prose by file: code, errors or pages."""
    if kind == "pages":
        return {page: CODE.sub("", FENCE.sub("", page.read_text())) for page in PAGES}
    of = prose_of_code if kind == "code" else prose_of_errors
    return {file: CODE.sub("", "\n".join(of(file.read_text()))) for file in SOURCES}


def words_in(texts: dict[Path, str]) -> int:
    return sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts.values())


def rate(pattern: str, texts: dict[Path, str]) -> float:
    """Return how often the phrase comes in 10,000 words."""
    found = sum(len(re.findall(pattern, text, re.IGNORECASE | re.MULTILINE)) for text in texts.values())
    return 1e4 * found / words_in(texts)
