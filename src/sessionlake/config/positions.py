"""The lines of keys in the text of a config, which tomllib does not report."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
Path = tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """A place in a text, both from 1."""

    line: int
    column: int


def places(text: str) -> dict[str, Place]:
    """Return the first place of each section and key, by its name as in "session.gap"; of a list of sections as in "lookup.0.on".

    tomllib reads the text one statement at a time: lines are collected until they parse, because texts and arrays may
    have several lines. Keys after a statement that is no TOML have no place.
    """
    found: dict[str, Place] = {}
    section: Path = ()
    counts: Counter[str] = Counter()
    gathered: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not gathered and (not line.strip() or line.lstrip().startswith("#")):
            continue
        gathered.append(line)
        statement = "\n".join(gathered)
        try:
            said = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue
        first, is_header = number - len(gathered) + 1, statement.lstrip().startswith("[")
        paths = list(_paths(said))
        if is_header:
            section = _numbered(paths[-1], counts, begins=statement.lstrip().startswith("[["))
            paths.append(section)
        for path in paths:
            name = ".".join(path if is_header else (*section, *path))
            found.setdefault(name, _place(statement, path[-1], first))
        gathered = []
    return found


def place_of(key: str, known: dict[str, Place]) -> Place | None:
    """Return the place of a key, or of the nearest section that it would stand in; None if there is no such section."""
    while key and key not in known:
        key = key.rpartition(".")[0]
    return known.get(key)


def error_place(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, Place]:
    """Return the problem of a text that is no TOML, and its place."""
    message = str(error)
    match = _AT.search(message)
    if match is None or match[1] is None:
        lines = text.rstrip("\n").split("\n")
        place = Place(len(lines), len(lines[-1]) + 1)
    else:
        place = Place(int(match[1]), int(match[2]))
    return _AT.sub("", message), place


def _paths(said: Any) -> Iterator[Path]:
    """Yield the names of a statement's keys; a table comes before the keys in it."""
    if isinstance(said, list) and said and isinstance(said[0], dict):
        said = said[0]
    if isinstance(said, dict):
        for name, value in said.items():
            yield (name,)
            yield from ((name, *below) for below in _paths(value))


def _numbered(path: Path, counts: Counter[str], *, begins: bool) -> Path:
    """Return a header's path with the number of its element after the name of each list; `begins` says that it begins an element."""
    found: Path = ()
    for depth, part in enumerate(path, 1):
        found = (*found, part)
        name = ".".join(found)
        if begins and depth == len(path):
            counts[name] += 1
        if counts[name]:
            found = (*found, str(counts[name] - 1))
    return found


def _place(statement: str, name: str, first: int) -> Place:
    """Return the place of a name in a statement that begins in a line."""
    match = re.search(rf"(?<![\w-]){re.escape(name)}(?=[\"']?\s*[=.\]])", statement)
    at = match.start() if match else len(statement) - len(statement.lstrip())
    before = statement[:at]
    return Place(first + before.count("\n"), at - before.rfind("\n"))
