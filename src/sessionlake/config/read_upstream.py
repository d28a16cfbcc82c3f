"""The stage of loading that reads the configs of other pipelines, and adds what follows from them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sessionlake.column_names import key_name, titles_of
from sessionlake.config.fields import as_columns
from sessionlake.config.file import ConfigFile, Raw, pipeline_files
from sessionlake.config.lookups import LookupSection
from sessionlake.config.operator_sections import section_in
from sessionlake.config.operators import OPERATORS, SECTIONS
from sessionlake.config.paths import resolved
from sessionlake.config.problems import Gathered, problems_of
from sessionlake.config.sources import SOURCES, SourceEntry
from sessionlake.config.upstream import LookedUpTable, Upstream
from sessionlake.errors import ConfigError, SessionlakeError

_SOURCE, _EVENT = "source", "event"


def pipeline_named(at: str, name: str, directory: Path) -> tuple[ConfigFile, Raw]:
    """Return the file of a pipeline, and its content with the project's defaults.

    `name` is its path, which ends in .toml, or its name if its file lies in the directory. ConfigError, of the key `at`, if
    there is no such file, or none that can be read.
    """
    try:
        file = _file_of(name, directory)
        if file is not None:
            return file, file.merged()
    except SessionlakeError as error:
        raise ConfigError(f"{at}: {name!r} can't be read ({problems_of(error)[0]})") from error
    raise ConfigError(
        f"{at}: there is no pipeline {name!r} beside this file; write its name, or the path of its config"
    )


def warehouse_of(at: str, name: str, file: ConfigFile, raw: Raw) -> str:
    """Return the warehouse of a pipeline's file; ConfigError, of the key `at`, if it has none."""
    pipeline = raw.get("pipeline")
    if not isinstance(pipeline, dict) or "warehouse" not in pipeline:
        raise ConfigError(f"{at}: {name!r} has no pipeline.warehouse; correct {file.own.path}")
    return resolved(str(pipeline["warehouse"]), file.directory)


def upstream_of(at: str, name: str, directory: Path) -> Upstream:
    """Return the pipeline that `of` names; ConfigError in one line if its results can't be read."""
    file, raw = pipeline_named(at, name, directory)
    section = section_in(raw)
    if section is None:
        raise ConfigError(f"{at}: {name!r} has no valid section of an operator; correct {file.own.path}")
    own = raw.get("pipeline")
    own = own if isinstance(own, dict) else {}
    kept, event = own.get("keep_replaced") is True, raw.get("event")
    key = _key_titles(event.get("key")) if isinstance(event, dict) else ()
    warehouse = warehouse_of(at, name, file, raw)
    return Upstream(str(own.get("name", name)), warehouse, section, kept, key if len(key) > 1 else ())


def looked_up_table(lookup_at: str, section: LookupSection, directory: Path) -> LookedUpTable:
    """Return the pipeline that a lookup's `table` names; ConfigError in one line if it can't be looked up."""
    at, named = f"{lookup_at}.{section.name}.table", str(section.table)
    file, raw = pipeline_named(at, named, directory)
    able = {name: entry for name, entry in OPERATORS.items() if entry.rows.one_per_key}
    operator = next((name for name, entry in able.items() if entry.section in raw), None)
    if operator is None:
        those = " or ".join(f"[{entry.section}]" for entry in able.values())
        raise ConfigError(
            f"{at}: {named!r} has no {those}, and so not one row a key; name such a pipeline, or write path"
        )
    event = raw.get("event")
    if not isinstance(event, dict):
        raise ConfigError(f"{at}: {named!r} has no [event]; correct {file.own.path}")
    return LookedUpTable(warehouse_of(at, named, file, raw), _key_titles(event.get("key")), operator)


def upstreams_in(raw: Raw, directory: Path, found: Gathered) -> dict[str, Upstream]:
    """Return the upstream pipelines of a config's content, by the place of the source, as in `source`; problems go to `found`."""
    upstreams = {}
    for at, holder in sources_in(raw):
        source = holder[_SOURCE]
        entry = _entry_of(source)
        if entry is not None and entry.is_pipeline and isinstance(source.get("of"), str) and source["of"]:
            with found.one():
                upstreams[at] = upstream_of(f"{at}.of", source["of"], directory)
    return upstreams


def with_events_of(raw: Raw, upstreams: Mapping[str, Upstream]) -> Raw:
    """Return a config's content with key and time of events that are rows of other pipelines, if the content names no columns.

    If a row that is taken back deletes the row of its key, the key is the columns that identify rows in front.
    Of a pipeline that is not among `upstreams`, because it can't be read, they are any names: a missing one is not the user's problem.
    """
    raw = _copied(raw)
    for at, holder in sources_in(raw):
        event, entry = holder.get(_EVENT, {}), _entry_of(holder[_SOURCE])
        if entry is not None and entry.is_pipeline and isinstance(event, dict):
            of = upstreams[at].changelog if at in upstreams else None
            key, time = ("key", "time") if of is None else (of.key, of.read_by)
            if of is not None and not of.one_per_key and holder[_SOURCE].get("rows") == "changes" and _deletes(raw):
                key = [*of.identity]
            # The key of one of several inputs is the operator's.
            holder[_EVENT] = {**({"key": key} if holder is raw else {}), "time": time, **event}
    return raw


def _entry_of(source: Raw) -> SourceEntry | None:
    """Return the entry of a source's kind; None if there is no such kind."""
    return SOURCES.get(str(source.get("kind")))


def _deletes(raw: Raw) -> bool:
    """Return whether a config's content has the section of an operator that deletes the row of a key."""
    return any(entry.deletes and entry.section in raw for entry in OPERATORS.values())


def _copied(value: Any) -> Any:
    return {name: _copied(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def sources_in(raw: Raw) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the place of each source, with the section that holds the source."""
    holders: list[tuple[str, Any]] = [("", raw)]
    for name in SECTIONS:
        sides = raw.get(name)
        holders += [(f"{name}.{side}.", holder) for side, holder in (sides.items() if isinstance(sides, dict) else ())]
    for at, holder in holders:
        if isinstance(holder, dict) and isinstance(holder.get(_SOURCE), dict):
            yield f"{at}{_SOURCE}", holder


def _file_of(name: str, directory: Path) -> ConfigFile | None:
    if name.endswith(".toml"):
        path = directory / name
        return ConfigFile.read(path) if path.exists() else None
    for path in dict.fromkeys((directory / f"{name}.toml", *pipeline_files(directory))):
        if path.is_file():
            file = ConfigFile.read(path)
            pipeline = file.own.content.get("pipeline", {})
            if isinstance(pipeline, dict) and pipeline.get("name", path.stem) == name:
                return file
    return None


def _key_titles(names: Any) -> tuple[str, ...]:
    """Return what results call the columns of a key; names that are wrong, which the pipeline's own check tells, as they are."""
    try:
        return titles_of(map(key_name, as_columns(names)))
    except ValueError:
        return as_columns(names)
