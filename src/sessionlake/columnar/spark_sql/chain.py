"""Columns computed one after another, each from the source's columns and the columns above it (docs/rules.md, rule 211)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from sessionlake.columnar.column_types import TIME
from sessionlake.columnar.expressions import EVENT_TIME, KEY, OWN_KEY, OWN_TIME, Computation, Step, result_type
from sessionlake.columnar.spark_sql.parse import Parsed
from sessionlake.columnar.spark_sql.typed import COMPUTED, duck_type, plain_type

_OWN = {KEY: OWN_KEY, EVENT_TIME: OWN_TIME}
_Known = tuple[pa.DataType, str, int]
"""A column that a link reads: its type, its place in the query, and its step's level."""


@dataclass(frozen=True)
class Link:
    """A computed column."""

    name: str
    parsed: Parsed
    of_event: bool = False
    """Whether its names `key` and `event_time` mean the event's key and time, and not columns."""
    result: str | None = None
    """The type that it must have; None for any."""


@dataclass(frozen=True)
class Chain:
    """Computed columns from top to bottom."""

    links: tuple[Link, ...] = ()

    def sources(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the source's columns behind the named columns, in order of first use."""
        columns, _ = self._reached(names)
        return tuple(name for name in columns if name not in (OWN_KEY, OWN_TIME))

    def computed(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the computed columns among some names."""
        return tuple(dict.fromkeys(name for name in names if self._link(name, len(self.links)) is not None))

    def computation(self, names: Iterable[str], types: Mapping[str, pa.DataType]) -> Computation | None:
        """Return the computation of the computed columns among some; None if there is none. `types` are the source's column types.

        ConfigError in one line for SQL that does not fit the types, or asks for the present.
        """
        names = self.computed(names)
        columns, links = self._reached(names)
        if not names:
            return None
        own = {OWN_KEY: pa.string(), OWN_TIME: TIME}
        known: dict[str | int, _Known] = {
            name: (own[name] if name in own else types[name], f"c{i}", -1) for i, name in enumerate(columns)
        }
        steps: list[Step] = []
        for link in links:
            reads = {told: known[base if of is None else of] for told, (base, of) in self._reads(link).items()}
            step, type_ = _step(self.links[link], reads)
            known[link] = (type_, f"k{len(steps)}", step.level)
            steps.append(step)
        outputs = {name: links.index(cast("int", self._link(name, len(self.links)))) for name in names}
        unknown = tuple(name for name in columns if types.get(name) == pa.null())
        return Computation(columns, tuple(steps), outputs, unknown)

    def _reached(self, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the source's columns and the links for columns, their own links included, each after its inputs."""
        columns: dict[str, None] = {}
        links: dict[int, None] = {}

        def visit(base: str, link: int | None) -> None:
            if link is None:
                columns[base] = None
            elif link not in links:
                for read in self._reads(link).values():
                    visit(*read)
                links[link] = None

        for name in names:
            visit(name, self._link(name, len(self.links)))
        return tuple(columns), tuple(links)

    def _reads(self, at: int) -> dict[str, tuple[str, int | None]]:
        """Return the columns that a link reads, by their names in its SQL: the source's name or the link of each."""
        link = self.links[at]
        own = _OWN if link.of_event else {}
        return {
            name: (own[name], None) if name in own else (name, self._link(name, at)) for name in link.parsed.columns
        }

    def _link(self, name: str, before: int) -> int | None:
        """Return a name's last link above a link."""
        return next((i for i in reversed(range(before)) if self.links[i].name == name), None)


def _step(link: Link, reads: Mapping[str, _Known]) -> tuple[Step, pa.DataType]:
    """Return a column's step and type; `reads` has its inputs by their names in its SQL."""
    parsed, types = link.parsed, {name: type_ for name, (type_, _, _) in reads.items()}
    done, uses_clock = parsed.translated(types, {name: place for name, (_, place, _) in reads.items()})
    if uses_clock:
        raise parsed.error(
            f"{parsed.text!r} asks for the present, and an event must mean the same whenever it is read; use a column of the event"
        )
    result = done.type
    if result == "null" and pa.null() in types.values():
        result = link.result or "bigint"  # Of columns that no event has shown yet
    if plain_type(result) is None or link.result not in (None, result):
        allowed = [link.result] if link.result else COMPUTED
        raise parsed.error(f"{parsed.text!r} is of type {result}; make it {' or '.join(allowed)}")
    parsed.typed(types, result)
    level = 1 + max((level for _, _, level in reads.values()), default=-1)
    return Step(f"try(cast({done.sql} as {duck_type(result)}))", result, level), result_type(result)
