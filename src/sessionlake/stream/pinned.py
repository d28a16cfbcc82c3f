"""What a pipeline's batches have fixed for later batches: the types of columns, and the aggregates in states."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sessionlake.aggregates import Aggregate, build_aggregates
from sessionlake.aggregates.layouts import Added, Layout
from sessionlake.columnar.equality import IdOrder
from sessionlake.config.load import Config
from sessionlake.config.names import column_of
from sessionlake.warehouse.batch_commit import BatchCommit, Settings

AGGREGATES = "aggregates"
"""The name of the aggregates among the settings that tables are bound to."""


@dataclass(frozen=True)
class Pinned:
    """The types and aggregates of the last batch.

    >>> pinned = Pinned({"user": "string"}, {"clicks": "count()"}, next_batch=7)
    >>> pinned.ordered({"spent": "sum(price)", "clicks": "count()"})
    {'clicks': 'count()', 'spent': 'sum(price)'}
    >>> pinned.is_added("spent"), pinned.since(["price"]), pinned.since(["user"])
    (True, 7, 7)
    """

    types: Mapping[str, str]
    """Types of the source's columns and of the records' places, by name."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The aggregates, in the order of the states."""
    layouts: tuple[Layout, ...] = ()
    """All past layouts; empty if there was only one."""
    next_batch: int = 0
    """The number of the next batch."""

    @classmethod
    def of(cls, last: BatchCommit | None) -> "Pinned | None":
        """Return what the last batch has fixed; None before the first one."""
        return None if last is None else cls.of_settings(last.settings, last.batch_id)

    @classmethod
    def of_settings(cls, settings: Settings, batch_id: int) -> "Pinned":
        """Return what a batch has fixed that ran under these settings."""
        layouts = tuple(Layout.read(fields) for fields in settings.layouts)
        return cls(settings.types, settings.rebuild.get(AGGREGATES) or {}, layouts, batch_id + 1)

    def input(self, name: str) -> "Pinned":
        """Return what is fixed for an input of several, the columns by their own names."""
        before = column_of(name, "")
        types = {column.removeprefix(before): text for column, text in self.types.items() if column.startswith(before)}
        return replace(self, types=types)

    def ordered(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Return aggregates in the order of the states, new ones last: the order in a config has no meaning."""
        return {name: texts[name] for name in dict.fromkeys((*self.texts, *texts)) if name in texts}

    def is_added(self, name: str) -> bool:
        """Say whether there are states without an aggregate."""
        return any(name not in texts for texts in ([layout.texts for layout in self.layouts] or [self.texts]))

    def since(self, columns: Iterable[str]) -> int:
        """Return the first batch from which on late and archived events have all of some columns of the source."""
        first = self.next_batch
        for layout in reversed(self.layouts):
            if not {*columns} <= {*layout.columns}:
                break
            first = layout.since
        return first

    def marked(self, aggregate: Aggregate, columns: Iterable[str]) -> Aggregate:
        """Return an aggregate that reads these columns of the source as states have it: an added aggregate says whether its value is known."""
        return Added(aggregate, self.since(columns)) if self.is_added(aggregate.name) else aggregate

    def built(self, config: Config, types: Mapping[str, pa.DataType]) -> tuple[Aggregate, ...]:
        """Return the aggregates in the last batch's states, which may differ from the config's; `types` are the event columns' types."""
        with_id, directory = config.event.id is not None, config.pipeline.code
        built = build_aggregates(
            self.texts,
            types,
            with_id=with_id,
            directory=directory,
            subtracts=config.subtracts,
            id_order=IdOrder.of([types.get(name, pa.string()) for name in config.event.id_columns]),
        )
        return tuple(self.marked(aggregate, ()) for aggregate in built)
