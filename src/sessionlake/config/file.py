"""A pipeline's config as a file: its own text, with the defaults of the project that it is in; every key knows its place."""

import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sessionlake.config.positions import Place, error_place, likely_cause, place_of, places
from sessionlake.config.problems import InvalidConfigError, Problem
from sessionlake.errors import ConfigError, did_you_mean

PROJECT_FILE = "project.toml"
"""The file that makes a directory a project: the defaults of the pipelines beside it."""
CONNECTION, CONNECTIONS = "connection", "connections"
SHARED = ("pipeline", "compact", "quality", "metrics", "lineage", "serve", "airflow")
"""The sections that may have defaults in a project."""
_OWN = ("name", "code")
"""Keys of [pipeline] without a default in a project."""
_CONNECTED = ("source", "kafka")
"""The sections, by the last part of their names, that may use a connection."""
_WAREHOUSE = "warehouse"
Raw = dict[str, Any]
_MOST_BYTES = 1 << 20
_DEEPEST = 50


@dataclass(frozen=True)
class Text:
    """A TOML file."""

    path: str
    """As it was named."""
    text: str
    content: Mapping[str, Any]

    @classmethod
    def read(cls, path: str | Path) -> "Text":
        """Read a file; ConfigError in one line, InvalidConfigError with the place if it is no TOML."""
        text = read_text(path)
        return cls(str(path), text, parse_toml(text, path))

    @cached_property
    def places(self) -> dict[str, Place]:
        """The places of its sections and keys."""
        return places(self.text)


@dataclass(frozen=True)
class Origin:
    """The statement that sets a key of a merged config."""

    file: str
    place: Place


@dataclass(frozen=True)
class ConfigFile:
    """A pipeline's file, and the file of its project if it is in one."""

    own: Text
    project: Text | None = None

    @classmethod
    def read(cls, path: str | Path) -> "ConfigFile":
        """Read a pipeline's file and that of its project; ConfigError for a file that is no pipeline's."""
        return cls.of(Text.read(_pipelines(path)))

    @classmethod
    def of(cls, own: Text) -> "ConfigFile":
        """Return the config of a text; relative paths and the project are those of its file."""
        beside = Path(own.path).resolve().parent / PROJECT_FILE
        if not beside.is_file():
            return cls(own)
        # Problems name it as the user named the pipeline's file; what lies beside a link need not lie beside the file.
        named = Path(own.path).with_name(PROJECT_FILE)
        return cls(own, Text.read(beside if Path(own.path).is_symlink() else named))

    @property
    def directory(self) -> Path:
        """The directory to which relative paths are relative."""
        return Path(self.own.path).resolve().parent

    @property
    def project_warehouse(self) -> str | None:
        """The warehouse of the project, as it is written; None outside a project."""
        if self.project is None:
            return None
        pipeline = self.project.content.get("pipeline")
        return str((pipeline if isinstance(pipeline, dict) else {}).get(_WAREHOUSE, _WAREHOUSE))

    def merged(self) -> Raw:
        """Return the content with the project's defaults. If both have a key, the pipeline's file wins.

        The name is that of the file, and the warehouse a folder of that name in the project's, if the pipeline's file
        does not say. InvalidConfigError has all that is wrong in the project's file, and connections that it lacks.
        """
        own = dict(self.own.content)
        problems: list[Problem] = []
        if self.project is not None:
            problems += _wrong_defaults(self.project)
            own = self._with_defaults(own, self.project)
        merged: Raw = self._connected(own, (), problems)
        if problems:
            raise InvalidConfigError(problems)
        return merged

    def origin(self, key: str) -> Origin | None:
        """Return the place that sets a key, in whichever of the two files; None if neither does."""
        key = self._named(key, by_number=True)
        if key in self.own.places:
            return Origin(self.own.path, self.own.places[key])
        if self.project is None:
            return None
        for name in (key, self._of_connection(key)):
            if name is not None and name in self.project.places:
                return Origin(self.project.path, self.project.places[name])
        return None

    def located(self, problems: Sequence[Problem]) -> list[Problem]:
        """Return problems with their places, in that order; those without a key last, those of the project's file at the end."""
        found = [self._located(problem) for problem in problems]
        return sorted(found, key=lambda one: (one.file not in (None, self.own.path), one.line is None, one.line or 0))

    def placed(self, line: str) -> str:
        """Return an error's line with the place of its key; unchanged if no key of that name is there."""
        problem = Problem.of(line)
        at = None if problem.key is None else self.origin(problem.key)
        return line if at is None else str(replace(problem, file=at.file, line=at.place.line))

    def _located(self, problem: Problem) -> Problem:
        if problem.key is None or problem.line is not None:
            return problem
        at, key = self.origin(problem.key), self._named(problem.key, by_number=True)
        problem = replace(problem, key=self._named(problem.key, by_number=False))
        if at is None and (near := place_of(key, self.own.places)) is not None:
            at = Origin(self.own.path, near)
        if at is not None:
            return replace(problem, file=at.file, line=at.place.line, column=at.place.column)
        return problem if problem.file is not None else replace(problem, file=self.own.path)

    def _named(self, key: str, *, by_number: bool) -> str:
        """Return a key with the elements of lists of sections by their numbers, or else by their names, as far as they have one."""
        found: list[str] = []
        at: Any = self.own.content
        for part in key.split("."):
            if isinstance(at, list):
                number, name = _element(at, part)
                found.append(str(number) if by_number and number is not None else name)
                at = None if number is None else at[number]
            else:
                found.append(part)
                at = at.get(part) if isinstance(at, dict) else None
        return ".".join(found)

    def _with_defaults(self, own: Raw, project: Text) -> Raw:
        defaults = {
            name: value for name, value in project.content.items() if name in SHARED and isinstance(value, dict)
        }
        pipeline = own.get("pipeline", {})
        if not isinstance(pipeline, dict):
            return own
        name = pipeline.get("name", Path(self.own.path).stem)
        named = {"name": name, _WAREHOUSE: f"{str(self.project_warehouse).rstrip('/')}/{name}"}
        shared = {key: value for key, value in defaults.get("pipeline", {}).items() if key not in (*_OWN, _WAREHOUSE)}
        return _merged({**defaults, "pipeline": {**named, **shared}}, own)

    def _connected(self, section: Any, at: tuple[str, ...], problems: list[Problem]) -> Any:
        """Return a section with the keys of the connections that it and its sections name."""
        if not isinstance(section, dict):
            return section
        section = {name: self._connected(value, (*at, name), problems) for name, value in section.items()}
        if not at or at[-1] not in _CONNECTED or CONNECTION not in section:
            return section
        name, key = section.pop(CONNECTION), ".".join((*at, CONNECTION))
        known = self._connections
        if not isinstance(name, str):
            problems.append(Problem(key, f"{name!r} is not a text; write the name of a connection in quotes"))
            return section
        if name not in known:
            problems.append(Problem(key, self._unknown(name, list(known))))
            return section
        return _merged(known[name], section)

    @property
    def _connections(self) -> Mapping[str, Raw]:
        given = self.project.content.get(CONNECTIONS) if self.project else None
        named = given.items() if isinstance(given, dict) else ()
        return {name: value for name, value in named if isinstance(value, dict)}

    def _unknown(self, name: str, known: list[str]) -> str:
        if self.project is None:
            return f"{name!r} would be a section of {PROJECT_FILE}, which is not beside this file; write the connection's keys here"
        near = did_you_mean(name, known)
        there = f"write one of {', '.join(known)}, or add it" if known else "add it"
        return f"{name!r} is no connection of {self.project.path}{near}; {there} as [{CONNECTIONS}.{name}]"

    def _of_connection(self, key: str) -> str | None:
        """Return the name in the project's file of a key that a connection may have set."""
        parts = key.split(".")
        for depth in range(len(parts) - 1, 0, -1):
            section: Any = self.own.content
            for part in parts[:depth]:
                section = section.get(part, {}) if isinstance(section, dict) else {}
            if isinstance(section, dict) and isinstance(section.get(CONNECTION), str):
                return ".".join((CONNECTIONS, section[CONNECTION], *parts[depth:]))
        return None


def _element(sections: Sequence[Any], part: str) -> tuple[int | None, str]:
    """Return number and name of the section in a list that a part of a key names, by either; None for one that is not there."""
    names = [one.get("name") if isinstance(one, dict) else None for one in sections]
    number = names.index(part) if part in names else int(part) if part.isdigit() else len(names)
    if number >= len(names):
        return None, part
    name = names[number]
    return number, name if isinstance(name, str) else part


def read_text(path: str | Path) -> str:
    """Return a config file's text, line ends as they are; ConfigError in one line, also for a pipe, a device or a file beyond 1 MiB."""
    try:
        # Without the flag a pipe would be waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"config: {str(path)!r} is no regular file; pass the path of a TOML file")
            content = file.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"config: {str(path)!r} is larger than 1 MiB; pass the path of a TOML file")
        return content.decode("utf-8-sig")  # Windows' editors begin a file with a mark
    except OSError as error:
        raise ConfigError(
            f"config: {str(path)!r} can't be read ({error.strerror}); pass the path of a TOML file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"config: {str(path)!r} is no UTF-8 ({error}); save it as UTF-8") from error


def parse_toml(text: str, path: str | Path) -> Raw:
    """Return the content of a config file's text; InvalidConfigError, with the place if there is one, if it is no TOML."""
    try:
        content = tomllib.loads(text)
        if not _is_deep(content):
            return content
    except RecursionError:
        pass
    except tomllib.TOMLDecodeError as error:
        said, place = error_place(error, text)
        lines = text.split("\n")
        line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
        cause = likely_cause(said, line)
        message = f"is no valid TOML ({said}); mend that line" if cause is None else f"is no valid TOML: {cause}"
        raise InvalidConfigError([Problem(None, message, str(path), place.line, place.column)]) from error
    raise InvalidConfigError(
        [Problem(None, f"is nested deeper than {_DEEPEST} levels; write less of it", str(path), 1, 1)]
    )


def _is_deep(content: Raw) -> bool:
    """Say whether sections and lists are nested so deeply that code which follows them would fail."""
    level: list[Any] = [content]
    for _ in range(_DEEPEST):
        parts = [one.values() if isinstance(one, dict) else one for one in level]
        level = [one for part in parts for one in part if isinstance(one, (dict, list))]
    return bool(level)


def pipeline_files(directory: str | Path) -> list[Path]:
    """Return the files of a project's pipelines, by name: those in the directory itself."""
    try:
        found = sorted(Path(directory).iterdir())
    except OSError as error:
        raise ConfigError(
            f"project: {str(directory)!r} can't be read ({error.strerror}); pass the path of a directory"
        ) from error
    return [file for file in found if file.suffix == ".toml" and file.name != PROJECT_FILE]


def _pipelines(path: str | Path) -> str | Path:
    """Return the path of a pipeline's file; ConfigError if it is that of a project."""
    is_project_file = Path(path).name == PROJECT_FILE
    if is_project_file or Path(path).is_dir():
        files = pipeline_files(Path(path).parent if is_project_file else path)
        what = "has the defaults of a project's pipelines" if is_project_file else "is a directory"
        there = ", ".join(map(str, files)) or "there is none yet"
        raise ConfigError(f"config: {str(path)!r} {what}; name a pipeline's file ({there})")
    return path


def _wrong_defaults(project: Text) -> Iterator[Problem]:
    """Yield the problems of a project's file that are there whatever the pipeline is."""

    def problem(key: str, message: str) -> Problem:
        place = place_of(key, project.places)
        line, column = (place.line, place.column) if place else (None, None)
        return Problem(key, message, project.path, line, column)

    for name, value in project.content.items():
        if name not in (*SHARED, CONNECTIONS):
            told = f"is no section of a project; write {', '.join(SHARED)} or {CONNECTIONS}, or move it to a pipeline's file"
            yield problem(name, told)
        elif not isinstance(value, dict):
            yield problem(name, "is not a section; write its name in brackets, and its keys below it")
        elif name == "pipeline":
            yield from (
                problem(f"{name}.{key}", "each pipeline has its own; remove it here") for key in _OWN if key in value
            )
        elif name == CONNECTIONS:
            wrong = [one for one, inner in value.items() if not isinstance(inner, dict)]
            yield from (problem(f"{name}.{one}", f"is not a section; write [{name}.{one}]") for one in wrong)


def _merged(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> Raw:
    """Return both, section by section and key by key; `own` wins."""
    found = dict(defaults)
    for name, value in own.items():
        before = found.get(name)
        found[name] = _merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return found


def rewrite(path: str | Path, content: bytes, before: Callable[[], None] = lambda: None) -> None:
    """Write a file's new content in the place of the old one, whole or not at all; permissions and links stay. `before` is called as the last step before."""
    file = Path(path).resolve()
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        temporary.chmod(file.stat().st_mode & 0o7777)
        before()
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
