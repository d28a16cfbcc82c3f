"""A pipeline's config as it is after the project's defaults, with the place that each value comes from."""

from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit

from sessionlake.config.file import ConfigFile
from sessionlake.config.implied import with_presets

_DERIVED = {
    "pipeline.name": "the file's name",
    "pipeline.warehouse": "a folder of the pipeline's name in the project's warehouse",
}
"""The keys that a project's pipelines have if nobody writes them, and their origins."""
_OF_PRESETS = ("pattern", "comment", "time_format")
"""The keys that follow from a preset if nobody writes them."""


def shown(file: ConfigFile) -> str:
    """Return the merged config as TOML; each line ends in a comment with the file and line that set its value."""
    lines = list(_section(file, (), with_presets(file.merged(), patterns=True)))
    return "\n".join(lines).strip() + "\n"


def values(file: ConfigFile) -> Iterator[dict[str, Any]]:
    """Yield an object for each key of the merged config: `key`, as in "session.gap", `value`, and `from`, the file and line that set it."""
    yield from _values(file, (), with_presets(file.merged(), patterns=True))


def _values(file: ConfigFile, at: tuple[str, ...], section: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in section.items():
        place = (*at, name)
        if isinstance(value, dict):
            yield from _values(file, place, value)
        else:
            yield {"key": ".".join(place), "value": value, "from": _origin(file, place)}


def _section(file: ConfigFile, at: tuple[str, ...], section: Mapping[str, Any]) -> Iterator[str]:
    values = {name: value for name, value in section.items() if not isinstance(value, dict) and not _is_list(value)}
    if at and (values or not section) and not at[-1].isdigit():
        yield f"\n[{_heading(at)}]"
    written = [
        (f"{_key(name)} = {tomlkit.item(value).as_string()}", _origin(file, (*at, name)))
        for name, value in values.items()
    ]
    width = max((len(text) for text, _ in written if len(text) < 60), default=0)
    for text, origin in written:
        yield f"{text:<{width}}  # {origin}"
    for name, value in section.items():
        if isinstance(value, dict):
            yield from _section(file, (*at, name), value)
        for number, one in enumerate(value if _is_list(value) else ()):
            yield f"\n[[{_heading((*at, name))}]]"
            yield from _section(file, (*at, name, str(number)), one)


def _is_list(value: Any) -> bool:
    """Say whether a value is a list of sections."""
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def _origin(file: ConfigFile, at: tuple[str, ...]) -> str:
    # A value in a table of one line has the place of that table; one in a section has a line of its own.
    for depth in range(len(at), min(len(at), 2) - 1, -1):
        origin = file.origin(".".join(at[:depth]))
        if origin is not None:
            return f"{''.join(map(_printable, str(origin.file)))}:{origin.place.line}"
    return "the preset" if at[-1] in _OF_PRESETS else _DERIVED.get(".".join(at), "default")


def _printable(character: str) -> str:
    """Return a character as a comment may have it: a file's name with a line break would go on as a line of the config."""
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _heading(at: tuple[str, ...]) -> str:
    """Return the heading of a section: TOML gives the sections of a list no numbers."""
    return ".".join(_key(name) for name in at if not name.isdigit())


def _key(name: str) -> str:
    return tomlkit.key(name).as_string()
