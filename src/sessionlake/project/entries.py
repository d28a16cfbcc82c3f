"""The entries of a catalog that pipelines are to have: a table or a view each, and the statements that make and drop it in Spark's SQL.

Each entry has a mark, by which later runs know the entries that they may change. A view has it as a property. A Delta table's properties
are those of its log, in every catalog: its entry has the mark in its comment, which a catalog keeps apart from Delta's description.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256

from sessionlake.config.load import Config
from sessionlake.config.paths import normal_path
from sessionlake.errors import ConfigError
from sessionlake.serve.described import Described, described
from sessionlake.serve.views import lake_with_tables, settled_by_batches, snapshot_columns, view_queries
from sessionlake.warehouse.dialects import SPARK

MADE_FOR, DEFINITION = "sessionlake.made_for", "sessionlake.definition"
"""The properties of views: the mark, and a hash of the definition."""
_DIGITS = 12
_MARK = f"[0-9a-f]{{{2 * _DIGITS}}}"
IN_COMMENT = re.compile(rf"\(sessionlake register ({_MARK})\)")
"""The mark in a table's comment."""
_LONGEST = 256
"""Characters of a column's comment in Hive's metastore."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Place:
    """A schema of a catalog; ConfigError if a name is no identifier."""

    catalog: str
    schema: str

    def __post_init__(self) -> None:
        for option, name in (("--catalog", self.catalog), ("--schema", self.schema)):
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{option}: {name!r} is no name of SQL; write letters, digits and _, for example 'lake'"
                )

    @property
    def name(self) -> str:
        """The schema's name in SQL."""
        return f"{self.catalog}.{self.schema}"

    def named(self, entry: str) -> str:
        """Return the name of an entry in SQL."""
        return f"{self.name}.{entry}"


@dataclass(frozen=True)
class Entry:
    """A table or a view in a schema."""

    name: str
    """Its name in the schema, in lower case, as Hive's metastore has names."""
    mark: str
    create: str
    location: str | None
    """The path or URI of a table; None of a view."""
    definition: str
    """A hash of a view's columns, comments and query; empty of a table."""

    @property
    def is_view(self) -> bool:
        """Whether it is a view."""
        return self.location is None


def entries_of(configs: Iterable[Config], place: Place) -> list[Entry]:
    """Return the entries of pipelines, each after the entries it reads; ConfigError for two of equal name."""
    entries: dict[str, tuple[Entry, str]] = {}
    for config in configs:
        for entry in _entries(config, place):
            if entry.name in entries:
                raise ConfigError(
                    f"pipeline.name: {config.pipeline.name!r} and {entries[entry.name][1]!r} both have a {place.named(entry.name)!r}; "
                    "rename one of them, or pass a --schema of its own for it"
                )
            entries[entry.name] = entry, config.pipeline.name
    return [entry for entry, _ in entries.values()]


def mark_of(config: Config) -> str:
    """Return the mark of a pipeline's entries: its first half is its project's."""
    project = config.project_warehouse or config.pipeline.warehouse
    return _hash(normal_path(project)) + _hash(config.pipeline.name)


def project_mark(mark: str) -> str:
    """Return the common part of the marks of a project's pipelines."""
    return mark[:_DIGITS]


def create_schema(place: Place, mark: str) -> str:
    """Return the statement that makes the schema."""
    comment = SPARK.text("Tables and views of sessionlake's pipelines")
    return f"create schema if not exists {place.name} comment {comment} with dbproperties ('{MADE_FOR}' = '{project_mark(mark)}')"


def drop_entry(place: Place, name: str, *, is_view: bool) -> str:
    """Return the statement to drop an entry; a table's files stay."""
    return f"drop view if exists {place.named(name)}" if is_view else f"drop table if exists {place.named(name)}"


def _entries(config: Config, place: Place) -> Iterator[Entry]:
    lake = lake_with_tables(config)

    def named(name: str) -> str:
        return place.named(_own(config, name))

    settled = settled_by_batches(config, lake, "spark", named)
    queries = view_queries(config, "spark", snapshot_columns(lake), named, named, settled)
    for one in described(config):
        yield _entry(config, place, one, queries)


def _entry(config: Config, place: Place, one: Described, queries: Mapping[str, str]) -> Entry:
    name, mark = _own(config, one.name), mark_of(config)
    if one.location is not None:
        comment = SPARK.text(f"{one.comment} (sessionlake register {mark})".strip())
        create = f"create table if not exists {place.named(name)} using delta comment {comment} location {SPARK.text(one.location)}"
        return Entry(name, mark, create, one.location, "")
    columns = ",\n".join(
        f"  {SPARK.named(column)}" + (f" comment {SPARK.text(comment[:_LONGEST])}" if comment else "")
        for column, comment in one.columns.items()
    )
    head = f"create or replace view {place.named(name)} (\n{columns}\n) comment {SPARK.text(one.comment)}"
    definition = _hash(f"{head} as {queries[one.name]}")
    properties = f"tblproperties ('{MADE_FOR}' = '{mark}', '{DEFINITION}' = '{definition}')"
    return Entry(name, mark, f"{head} {properties} as\n{queries[one.name]}", None, definition)


def _own(config: Config, name: str) -> str:
    return f"{config.prefix}{name}".lower()


def _hash(text: str) -> str:
    # Only digits and letters a to f: Spark hides properties in which it sees a secret or an address.
    return sha256(text.encode()).hexdigest()[:_DIGITS]
