"""Parts of a config's text that tomllib does not report: the lines of keys, and the likely fault of a line that is no TOML."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_PAIR = re.compile(r"\s*([\w.-]+)\s*=\s*(.*?)\s*(?:\s#.*)?$")
_TWICE = re.compile(r"Cannot declare \((.*?),?\) twice")
_UNQUOTED = ("Invalid value", "Expected newline or end of document after a statement")
_ESCAPED = ("Invalid hex value", "Unescaped '\\' in a string")
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


def likely_cause(said: str, line: str) -> str | None:
    r"""Return the likely fault of a line at which the parser `said` something, with a remedy; None if there is no likely one.

    The message leaves out the value, which may be a secret.

    >>> likely_cause("Invalid value", "kind = files")
    'kind: the text has no quotes; write kind = "..."'
    """
    if declared := _TWICE.match(said):
        name = ".".join(part.strip(" '\"") for part in declared[1].split(","))
        return f"{name}: the section [{name}] is written twice; put all its keys below one of them"
    pair = _PAIR.match(line)
    return None if pair is None else _of_pair(said, *pair.groups())


def _of_pair(said: str, key: str, value: str) -> str | None:
    if said.startswith("Cannot overwrite"):
        return f"{key}: is written twice in its section; keep one of the two"
    if said.startswith(_ESCAPED):
        return f"{key}: a backslash begins an escape in double quotes; write the text in single quotes"
    if not said.startswith(_UNQUOTED) or not value or value[0] in "\"'[{":
        return None
    if value.lower() in ("true", "false"):
        return f"{key}: {value!r} is written in small letters; write {key} = {value.lower()}"
    return f'{key}: the text has no quotes; write {key} = "..."'


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
