"""Pipelines' tables and views in a catalog of Spark: the steps from existing entries to wanted entries."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from sessionlake.config.paths import normal_path
from sessionlake.errors import ConfigError, SessionlakeError, first_line
from sessionlake.project.entries import (
    DEFINITION,
    IN_COMMENT,
    MADE_FOR,
    Entry,
    Place,
    create_schema,
    drop_entry,
    project_mark,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_TYPE = re.compile(r"^Type: (\w+)$", re.MULTILINE)
_LOCATION = re.compile(r"^Location: (.*)$", re.MULTILINE)
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )*(.+)$", re.MULTILINE)
_PROPERTIES = re.compile(r"^Table Properties: \[(.*)\]$", re.MULTILINE)


class Action(StrEnum):
    """What a step does."""

    MADE = "made"
    REPLACED = "replaced"
    KEPT = "kept"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Step:
    """An entry, its change, and the statements for the change."""

    name: str
    action: Action
    statements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """An entry of a catalog as it is."""

    is_view: bool
    mark: str | None
    """None if `register` has not made it."""
    definition: str
    location: str

    @classmethod
    def of(cls, information: str) -> "Found":
        r"""Return it as `show table extended` describes it.

        >>> Found.of("Type: EXTERNAL\nProvider: delta\nLocation: file:/lake/sessions\n")
        Found(is_view=False, mark=None, definition='', location='file:/lake/sessions')
        """
        kind = _TYPE.search(information)
        is_view = kind is not None and kind[1] == "VIEW"
        # Last: a view's query, and comments, are anybody's texts.
        *_, properties = "", *_PROPERTIES.findall(information)
        *_, location = "", *_LOCATION.findall(information)
        if not is_view:
            comment = IN_COMMENT.search(information)
            return cls(False, comment[1] if comment else None, "", location)
        own = dict(one.split("=", 1) for one in properties.split(", ") if "=" in one)
        return cls(True, own.get(MADE_FOR), own.get(DEFINITION, ""), location)

    def shows(self, entry: Entry) -> bool:
        """Say whether it is as an entry is to be."""
        if self.is_view != entry.is_view or self.mark != entry.mark:
            return False
        if entry.location is None:
            return self.definition == entry.definition
        return normal_path(self.location) == normal_path(entry.location)


class Catalog:
    """A schema of a Spark catalog, which need not exist. Spark's errors become the user's, in one line."""

    def __init__(self, spark: "SparkSession", place: Place) -> None:
        if place.catalog == "spark_catalog" and spark.conf.get("spark.sql.catalogImplementation") != "hive":
            raise ConfigError(
                "spark.sql.catalogImplementation: this Spark keeps its catalog in memory, and forgets it at its end; set it to 'hive'"
            )
        if spark.conf.get(f"spark.sql.catalog.{place.catalog}", None) is None:
            raise ConfigError(
                f"--catalog: {place.catalog!r} is no catalog of this Spark; set spark.sql.catalog.{place.catalog}, or leave --catalog out"
            )
        self._spark, self._place = spark, place

    def has_schema(self) -> bool:
        """Say whether the schema is there."""
        rows = self.run(f"show schemas in {self._place.catalog} like '{self._place.schema}'")
        return any(row[0].lower() == self._place.schema.lower() for row in rows)

    def made_schema(self, ours: str) -> bool:
        """Say whether the schema, which is there, was made for this project."""
        rows = self.run(f"describe schema extended {self._place.name}")
        return any(f"({MADE_FOR},{project_mark(ours)})" in str(row[1]) for row in rows)

    def found(self) -> dict[str, Found]:
        """Return the entries of the schema, which is there, by name."""
        rows = self.run(f"show table extended in {self._place.name} like '*'")
        return {row["tableName"].lower(): Found.of(row["information"]) for row in rows if not row["isTemporary"]}

    def run(self, statement: str) -> "list[Row]":
        """Run a statement, and return its rows."""
        from pyspark.errors import PySparkException  # noqa: PLC0415 (statements are printed without Spark)

        try:
            return self._spark.sql(statement).collect()
        except PySparkException as error:
            raise SessionlakeError(f"register: {_cause(error)}; look at the catalog and its settings") from error


def _cause(error: Exception) -> str:
    """Return an error's first line, or its first cause's: a metastore's own error says only that it can't be reached."""
    causes = _CAUSE.findall(getattr(error, "_stackTrace", None) or "")
    return first_line(causes[-1] if causes else error).rstrip(".")


def registered(catalog: Catalog, place: Place, entries: list[Entry], ours: str, *, replace: bool = False) -> list[Step]:
    """Return the steps, not yet done, that make the catalog have these entries, and of ours no others.

    `ours` begins the marks of entries that may be changed: a pipeline's, or a project's.
    ConfigError if a name is that of an entry that `register` has not made, or has made for another project; with `replace`
    the latter are replaced.
    """
    first = [] if catalog.has_schema() else [Step(place.name, Action.MADE, (create_schema(place, entries[0].mark),))]
    present = {} if first else catalog.found()
    _refuse_others(place, entries, present, ours, replace=replace)
    steps = [_step(place, entry, present.get(entry.name)) for entry in entries]
    names = {entry.name for entry in entries}
    return [*first, *steps, *_dropped(place, {name: one for name, one in present.items() if name not in names}, ours)]


def unregistered(catalog: Catalog, place: Place, ours: str) -> list[Step]:
    """Return the steps, not yet done, that drop our entries, and the schema if it was made for them and has no others."""
    if not catalog.has_schema():
        return []
    entries = catalog.found()
    steps = _dropped(place, entries, ours)
    if len(steps) == len(entries) and catalog.made_schema(ours):
        steps.append(Step(place.name, Action.DROPPED, (f"drop schema if exists {place.name} restrict",)))
    return steps


def _step(place: Place, entry: Entry, one: Found | None) -> Step:
    name = place.named(entry.name)
    if one is None:
        return Step(name, Action.MADE, (entry.create,))
    if one.shows(entry):
        return Step(name, Action.KEPT)
    # A view is replaced by its statement.
    before = () if one.is_view and entry.is_view else (drop_entry(place, entry.name, is_view=one.is_view),)
    return Step(name, Action.REPLACED, (*before, entry.create))


def _dropped(place: Place, found: Mapping[str, Found], ours: str) -> list[Step]:
    """Return the steps that drop our entries, views first."""
    gone = [
        (not one.is_view, name) for name, one in found.items() if one.mark is not None and one.mark.startswith(ours)
    ]
    return [
        Step(place.named(name), Action.DROPPED, (drop_entry(place, name, is_view=not is_table),))
        for is_table, name in sorted(gone)
    ]


def _refuse_others(
    place: Place, entries: Iterable[Entry], found: Mapping[str, Found], ours: str, *, replace: bool
) -> None:
    for entry in entries:
        one = found.get(entry.name)
        if one is None or (one.mark is not None and (replace or one.mark.startswith(ours))):
            continue
        if one.mark is None:
            said = "is there, and `sessionlake register` has not made it; rename or drop it, or pass another --schema"
        else:
            said = (
                "was registered for another warehouse; pass another --schema, or --replace, for example after a rebuild"
            )
        raise ConfigError(f"--schema: {place.named(entry.name)!r} {said}")
