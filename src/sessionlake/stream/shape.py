"""Between decoder and contract: computed columns and `where` (docs/rules.md, rules 210 to 213).

Tables and jobs keep the source's columns of an event. What is computed of them is computed again wherever events are read, so
operators see columns and do not know which of them are computed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events
from sessionlake.column_names import is_element
from sessionlake.columnar.arrays import Bools
from sessionlake.columnar.column_types import TIME
from sessionlake.columnar.expressions import OWN_KEY, OWN_TIME, Computation
from sessionlake.columnar.sql_places import Origin
from sessionlake.errors import PipelineStateError
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import NO_ROW, WRONG_TYPE, no_row, wrong_column
from sessionlake.sources.decoding.rows import Rows

if TYPE_CHECKING:
    from sessionlake.columnar.spark_sql.chain import Chain
    from sessionlake.config.sections import EventSection

WHERE = "\0where"
"""The name of the condition among computed columns."""
_Texts = tuple[tuple[str, str], ...]
Hidden = Mapping[str, tuple[str, str, Origin]]
"""Columns for arguments of aggregates: by name the config's key, the SQL, which also sees `key` and `event_time`, and its source text."""
_NONE: Hidden = MappingProxyType({})


@dataclass(frozen=True)
class Shape:
    """How a source's rows become events; pickled to the workers. Without a setting it changes nothing."""

    at: str = "event"
    """The section of the events."""
    texts: _Texts = ()
    """The SQL of computed columns by name, from top to bottom."""
    where: str | None = None
    condition: Computation | None = None
    """That of `where`."""
    own: Computation | None = None
    """That of key, time and id, as far as they are computed."""
    values: Computation | None = None
    """The computation of the operator's computed columns."""
    inputs: tuple[str, ...] = ()
    """The columns that the operator reads."""
    looked_up: Mapping[str, str] = field(default_factory=dict)
    """The columns that lookups add, each with the lookup's name."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The source's columns that `where` reads."""
        return () if self.condition is None else self.condition.columns

    def filtered(self, rows: Rows) -> tuple[Rows, int]:
        """Return the rows for which `where` is true, the rows refused whatever it says, and the number of the others."""
        if self.condition is None:
            return rows, 0
        keep = self.kept(rows.table, rows.error)
        at, count = np.flatnonzero(keep), len(keep)
        if len(at) == count:
            return rows, 0
        some = replace(
            rows,
            table=rows.table.filter(pa.array(keep)),
            error=None if rows.error is None else rows.error.filter(pa.array(keep)),
            raw=lambda places: rows.raw(at[places]),
            source=lambda places: rows.source(at[places]),
            places=None if rows.places is None else rows.places[at],
            sign=None if rows.sign is None else rows.sign[at],
        )
        return some, count - len(at)

    def kept(self, table: pa.Table, error: pa.Array | None) -> Bools:
        """Return the rows that are not filtered: `where` is true, or the row is refused whatever it says (`error` of `Rows`)."""
        if self.condition is None:
            return np.ones(table.num_rows, bool)
        true = self.condition.evaluate(_columns(table), table.num_rows)[WHERE]
        keep: Bools = pc.fill_null(true, fill_value=False).to_numpy(zero_copy_only=False)
        return keep if error is None else keep | self._refused(error, self.asked)

    def _refused(self, error: pa.Array, asked: Iterable[str]) -> Bools:
        """Return the rows that are no events whatever the columns say that are not `asked` (rule 213)."""
        refused = pc.invert(pc.or_(pc.starts_with(error, WRONG_TYPE), pc.starts_with(error, NO_ROW)))
        for name in asked:
            refused = pc.or_(refused, pc.starts_with(error, wrong_column(name)))
            if name in self.looked_up:
                refused = pc.or_(refused, pc.equal(error, no_row(self.looked_up[name])))
        return pc.fill_null(refused, fill_value=False).to_numpy(zero_copy_only=False)

    def with_own(self, table: pa.Table) -> pa.Table:
        """Return a table of the source's columns with the computed key, time and id in place of columns of their names."""
        if self.own is None:
            return table
        computed = self.own.evaluate(_columns(table), table.num_rows)
        others = {name: column for name, column in _columns(table).items() if name not in computed}
        return pa.table({**others, **computed})

    def events(self, read: Events) -> Events:
        """Return events with the source's columns and the operator's."""
        if self.values is None:
            return read
        given = dict(read.columns)
        if OWN_KEY in self.values.columns:
            given[OWN_KEY] = read.keys
        if OWN_TIME in self.values.columns:
            given[OWN_TIME] = pa.array(read.time_us).cast(TIME)
        found = {**read.columns, **self.values.evaluate(given, len(read.time_us))}
        return replace(read, columns={name: found[name] for name in self.inputs}, source=read.columns)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of the columns that are computed."""
        return {
            name: type_ for part in (self.own, self.values) if part is not None for name, type_ in part.types.items()
        }

    def under(self, where: str | None, texts: Mapping[str, str] | None, columns: EventColumns) -> "Shape":
        """Return the shape with another text of `where`, over other computed columns if `texts` are given.

        What the operator reads is computed as before. PipelineStateError if the text names a column which is not read.
        """
        given = self.texts if texts is None else tuple(texts.items())
        if where == self.where and given == self.texts:
            return self
        read = tuple((name, columns.types[name]) for name in columns.needed)
        condition = None if where is None else _condition(self.at, given, where, read)
        return replace(self, texts=given, where=where, condition=condition)


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


@lru_cache(maxsize=64)
def _condition(at: str, texts: _Texts, where: str, read: tuple[tuple[str, pa.DataType], ...]) -> Computation | None:
    types = dict(read)
    shaping = Shaping(at, texts, where, (), ())
    unread = [name for name in shaping.asked if name not in types]
    if unread:
        raise PipelineStateError(
            f"{at}.where: a batch was read under {where!r}, and {unread[0]!r} is read no more; name that column in {at}.where again, "
            f"as in `... or ({unread[0]} is null and false)`"
        )
    return shaping.condition(types)


@dataclass(frozen=True)
class Shaping:
    """The shape of a config, parsed and not yet typed: which columns of the source are read."""

    at: str
    texts: _Texts
    where: str | None
    own: tuple[str, ...]
    """The columns that are key, time and id."""
    wanted: tuple[str, ...]
    """The columns that the operator reads."""
    hidden: Hidden = field(default_factory=dict)

    @classmethod
    def of(
        cls, at: str, event: "EventSection", own: Iterable[str | None], wanted: Sequence[str], hidden: Hidden = _NONE
    ) -> "Shaping":
        """Return that of an event's section, which is called `at`."""
        names = tuple(name for name in own if name)
        # An aggregate's argument that is an element is hidden, and has its own place in errors.
        elements = {name: name for name in (*names, *wanted) if is_element(name) and name not in hidden}
        texts = tuple({**elements, **event.columns}.items())
        return cls(at, texts, event.where, names, tuple(dict.fromkeys(wanted)), hidden)

    @cached_property
    def _chain(self) -> "Chain":
        from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)
        from sessionlake.columnar.spark_sql.chain import Chain, Link  # noqa: PLC0415

        links = [
            Link(name, parse(self.at if is_element(name) else f"{self.at}.columns.{name}", text))
            for name, text in self.texts
        ]
        if self.where is not None:
            links.append(Link(WHERE, parse(f"{self.at}.where", self.where), result="boolean"))
        links += [Link(name, parse(*given), of_event=True) for name, given in self.hidden.items()]
        return Chain(tuple(links))

    def check(self) -> None:
        """Raise a one-line ConfigError for text that is no SQL."""
        if not self.is_plain:
            _ = self._chain

    @property
    def is_plain(self) -> bool:
        """Whether nothing is computed or filtered."""
        return not self.texts and self.where is None and not self.hidden

    @property
    def inputs(self) -> tuple[str, ...]:
        """The source's columns that the operator's are computed of, or are."""
        return self.sources(self.wanted)

    def sources(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the source's columns that some of the operator's are computed of, or are."""
        return tuple(names) if self.is_plain else self._chain.sources(names)

    @property
    def plain(self) -> tuple[str, ...]:
        """Key, time and id, if they are columns of the source."""
        computed = () if self.is_plain else self._chain.computed(self.own)
        return tuple(dict.fromkeys(name for name in self.own if name not in computed))

    @property
    def asked(self) -> tuple[str, ...]:
        """The source's columns that `where` reads."""
        return () if self.where is None else self._chain.sources([WHERE])

    @property
    def also(self) -> tuple[str, ...]:
        """The source's columns that a computed key, time and id read."""
        return () if self.is_plain else self._chain.sources(self._chain.computed(self.own))

    def condition(self, types: Mapping[str, pa.DataType]) -> Computation | None:
        """Return the computation of `where`, if any, over the source's columns of these types."""
        return None if self.where is None else self._chain.computation([WHERE], types)

    def shape(self, types: Mapping[str, pa.DataType]) -> Shape:
        """Return the shape over the source's columns of these types; a one-line ConfigError for SQL that does not fit them."""
        if self.is_plain:
            return Shape(self.at)
        own, values = (self._chain.computation(names, types) for names in (self.own, self.wanted))
        return Shape(self.at, self.texts, self.where, self.condition(types), own, values, self.wanted)
