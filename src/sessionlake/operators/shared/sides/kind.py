"""The common part of all kinds with a left and a right event input."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.operators.shared.sides.columns import Sides, event_types
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.kind import State
from sessionlake.warehouse.changelog import Changelog


class SidedKind:
    """The part of a `Kind`, see there for the methods, that has two inputs and no aggregates."""

    changelogs: ClassVar[tuple[Changelog, ...]]
    redeeming: ClassVar[None] = None
    lookups: ClassVar[None] = None

    @property
    def sides(self) -> Sides:
        """Return the two inputs, as workers know them."""
        raise NotImplementedError

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """Return the events of both."""
        return {name: side.events for name, side in self.sides.items()}

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """Return nothing: rows are paired, and not aggregated."""
        return ()

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """Return the columns of both sides, called as in a result."""
        return event_types(self.sides)

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return those of all configs."""
        del config
        return cls.changelogs

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return nothing: the config's own settings say all."""
        return {}

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Return nothing: no batch is refused."""
        del operator, state, stats
        return ()
