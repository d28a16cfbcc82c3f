"""The operator of any config, without Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.config.checks import check_remembered
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.errors import ConfigError
from sessionlake.local.columns import Types
from sessionlake.local.rows import Row
from sessionlake.local.source import Lookups, local_config, local_operator
from sessionlake.standalone.base import Positions, Standalone
from sessionlake.standalone.outbox import Downstream
from sessionlake.warehouse.changelog import changelog_of


class Pipeline(Standalone[Operator[Any]]):
    """The operator that a config asks for, over messages that are added one at a time or as tables.

    `config` is a pipeline's TOML file, or its content, which needs no [pipeline]. Of [source] and [event] only the names and
    units of columns mean something. Outputs are dicts with the columns of the operator's changelog, times in microseconds.
    `schema`, `downstream` and `batch` are those of a `WindowedAggregator`. `lookups` are the rows that messages are looked up
    in, by the name of the lookup. ConfigError for an invalid config, or for one that
    is not the directory's.

    >>> from tempfile import TemporaryDirectory
    >>> config = {
    ...     "source": {"kind": "files", "path": "updates", "format": "json"},
    ...     "event": {"key": "id", "time": "at", "time_unit": "us"},
    ...     "table": {"columns": ["status"], "retention": "1 day"},
    ... }
    >>> with TemporaryDirectory() as directory, Pipeline(directory, config) as run:
    ...     run.add_message({"id": "LH1", "at": 0, "status": "boarding"}, clock_us=0)
    ...     [(row["table_key"], row["status"]) for row in run.get_result()]
    [('LH1', 'boarding')]
    """

    def __init__(
        self,
        directory: str | Path,
        config: Config | Mapping[str, Any] | str | Path,
        *,
        schema: Mapping[str, str] | None = None,
        downstream: Downstream | None = None,
        batch: int = 1,
        lookups: Lookups | None = None,
    ) -> None:
        self._lookups = lookups
        self._config = local_config(config)
        self._of = changelog_of(self._config)
        super().__init__(directory, self._definition, schema, downstream, batch)

    def _definition(self, made: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the definition, with the default of grace that the directory was made with."""
        if made.get("grace_us", self._config.grace_us) != self._config.grace_us:
            self._config = self._config.with_grace(made["grace_us"])
        check_remembered(self._config)
        return {"layout": STATE_LAYOUT, **self._config.rebuild_settings(), **self._config.live_settings()}

    def add_message(
        self,
        message: Row,
        *,
        name: str | None = None,
        position: int | None = None,
        partition: int = 0,
        clock_us: int | None = None,
    ) -> None:
        """Add a message to the input of a name, which may be left out if there is one; else as `WindowedAggregator.add_message`."""
        self._add_one(self._named_input(name), message, position, partition, clock_us)

    def add_messages(
        self,
        table: pa.Table,
        *,
        name: str | None = None,
        positions: Positions | None = None,
        partitions: Positions | int = 0,
        clock_us: int | None = None,
    ) -> None:
        """Add the rows of a table to an input as one batch; else as `WindowedAggregator.add_messages`."""
        self._add_table(self._named_input(name), table, positions, partitions, clock_us)

    def positions(self, name: str | None = None) -> dict[int, int]:
        """Return by partition the last position of an input that is flushed. After a crash, add the messages after it."""
        return self._positions(self._named_input(name))

    def _named_input(self, name: str | None) -> str:
        names = list(self._config.inputs)
        if name is None and len(names) == 1:
            return names[0]
        if name not in names:
            raise ConfigError(f"name: {name!r} is no input; write {' or '.join(names)}")
        return name

    def _build(self, types: Mapping[str, Types]) -> Operator[Any]:
        given = {name: {**types.get(name, {}), **self._declared} for name in self._config.inputs}
        return local_operator(self._config, given, self._lookups, self._saved.unique_secret)
