"""The common part of all kinds with one input of events."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.stream.event_operator import OfEvents
from sessionlake.stream.ingest import EVENTS, EventSpec
from sessionlake.warehouse.changelog import Changelog

if TYPE_CHECKING:
    from sessionlake.stream.kind import State

Spec = TypeVar("Spec", bound=OfEvents)


class EventKind(Generic[Spec]):
    """The part of a `Kind`, see there for the methods, that has one input of events."""

    numbers_messages: ClassVar[bool] = False
    late_columns: ClassVar[tuple[pa.Field, ...]] = ()
    changelog: ClassVar[Changelog]

    def __init__(self, config: Config, spec: Spec) -> None:
        self._config, self.spec = config, spec

    @property
    def inputs(self) -> Mapping[str, EventSpec]:
        """Return the one input, of events."""
        return {EVENTS: self.spec.events}

    @property
    def aggregates(self) -> Sequence[Aggregate]:
        """Return those of the settings that workers need."""
        found: Sequence[Aggregate] = getattr(self.spec, "aggregates", ())
        return found

    @property
    def event_types(self) -> Mapping[str, pa.DataType]:
        """Return the columns that are read besides key, time and id."""
        return self.spec.events.stored_types

    @property
    def changelogs(self) -> tuple[Changelog, ...]:
        """Return those of the pipeline's config."""
        return self.changelogs_in(self._config)

    @classmethod
    def changelogs_in(cls, config: Config) -> tuple[Changelog, ...]:
        """Return the one."""
        del config
        return (cls.changelog,)

    @classmethod
    def bound_settings(cls) -> dict[str, Any]:
        """Return the version of the packed states' bytes."""
        return {"state layout": STATE_LAYOUT}

    def checked(self, operator: Operator[Any], state: "State", stats: Mapping[str, int]) -> Sequence[str]:
        """Return nothing: no batch is refused."""
        del operator, state, stats
        return ()

    @classmethod
    def unneeded(cls, config: Config, state: "State") -> Mapping[str, str]:
        """Return nothing: rows trimmed from a changelog are in its snapshot."""
        del config, state
        return {}
