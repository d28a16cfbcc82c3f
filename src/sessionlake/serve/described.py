"""A pipeline's tables and views in words, for catalogs: their comments, and those of their columns."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from sessionlake.config.load import Config
from sessionlake.serve.database import open_database
from sessionlake.serve.views import lake_with_tables
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import Changelog

_SHOWN = {
    "all": "",
    "final": ", if events can't change it any more",
    "marked": "; `final` marks those that events can't change any more",
}
_OF_VIEWS = {"final": "Whether events can't change the row any more"}


@dataclass(frozen=True)
class Described:
    """A table or a view of a pipeline."""

    name: str
    """Its own name, as in `sessionlake sql`."""
    comment: str
    columns: Mapping[str, str]
    """The comments of its columns, by their names in order; empty texts for those without."""
    location: str | None = None
    """The path or URI of a table; None of a view."""


def described(config: Config) -> list[Described]:
    """Return the tables that are there, then the views, each after those that it reads; NoBatchesError if there are none yet."""
    lake = lake_with_tables(config)
    tables = [
        _table(name, lake[name].open(), lake[name].uri)
        for name in (*lake.changelog.tables, *schemas.SHARED)
        if lake[name].exists()
    ]
    columns = {table.name: table.columns for table in tables}
    known = {**columns[lake.changelog.changes], **columns[lake.changelog.snapshot], **_OF_VIEWS}
    with closing(open_database(config, lake)) as database:
        views = [
            Described(name, comment, {one: known.get(one, "") for one in database.table(name).columns})
            for name, comment in _views(config, lake.changelog)
        ]
    return [*tables, *views]


def _table(name: str, table: Any, uri: str) -> Described:
    comments = {field.name: str(field.metadata.get("comment", "")) for field in table.schema().fields}
    return Described(name, table.metadata().description or "", comments, uri)


def _views(config: Config, of: Changelog) -> Iterator[tuple[str, str]]:
    """Yield the views and their comments."""
    one = config.entry.rows.one
    yield of.live, f"The latest state of each {one}{_SHOWN[config.section.facts.shown]}"
    yield of.every, f"The latest state of each {one}, also of those that {of.live} leaves out"
    for name in config.section.further_views("duckdb", "{}", of.every):
        yield name, f"The {name.replace('_', ' ')}"
