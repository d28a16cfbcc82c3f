"""Joins of two streams, without Spark."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates.codec import STATE_LAYOUT
from sessionlake.columnar.equality import text_of
from sessionlake.config.durations import retention_of
from sessionlake.engine.operator import Operator
from sessionlake.errors import ConfigError
from sessionlake.local.columns import Types
from sessionlake.local.rows import Row
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.spec import SESSION, SLIDING, TIME_AXIS
from sessionlake.operators.shared.sides.names import LEFT, RIGHT, SIDES, other_of
from sessionlake.standalone.base import Positions, Standalone
from sessionlake.standalone.emit import Emit
from sessionlake.standalone.join_windows import side_windows
from sessionlake.standalone.outbox import Downstream
from sessionlake.standalone.retained_messages import rows_of
from sessionlake.store.buffered import Part
from sessionlake.store.messages import Messages, MessageStore
from sessionlake.stream.ingest import DEAD_LETTER

_LETTERS = {LEFT: "l", RIGHT: "r"}
_FOREVER = 1 << 61


class JoinWindow(Standalone[Joiner]):
    """Pairs of messages of two streams, left and right, that are added one at a time or as tables.

    The arguments are the keys of the section [join]. `left` and `right` have `name`, `size` (a duration, by count a number of
    messages, None for as long as the retention allows; of sliding joins), `columns`, and `time` ("time_us" if it is not
    given: event time in microseconds or, if `schema` says "timestamp", timestamps; by count None takes the clock's).
    Equal fields are `on` = ["id"], or ["order_id = id"] if names differ. `schema` = {"column": "long" | "double" |
    "string" | "boolean" | "timestamp" | "date"} is for both sides; a side's first message fixes the types of other columns.

    Outputs are dicts with the columns of join_changelog, times in microseconds; late and refused messages have their `side`.
    By time, `grace` is by default the longest that the retention allows (docs/rules.md, rule 269). `max_future_skew` is as of a
    `WindowedAggregator`, by default the grace that is given, a minute at least.
    `retention_time` is the old name of `retention`.
    `batch` is how many messages of both sides `add_message` gathers to one batch (`Standalone`).
    ConfigError for an invalid join, or for one that is not the directory's.

    >>> from tempfile import TemporaryDirectory
    >>> orders = {"name": "orders", "size": "2 minutes", "columns": ["value"]}
    >>> shipments = {"name": "shipments", "size": "30 seconds", "columns": ["cost"]}
    >>> with TemporaryDirectory() as directory:
    ...     with JoinWindow(directory, on=["id"], left=orders, right=shipments, retention="1 day") as run:
    ...         run.add_message("left", {"id": 1, "time_us": 0, "value": 5})
    ...         run.add_message("right", {"id": 1, "time_us": 90_000_000, "cost": 2})
    ...         [(pair["orders_value"], pair["shipments_cost"]) for pair in run.get_result()]
    [(5, 2)]
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        left: Mapping[str, Any],
        right: Mapping[str, Any],
        on: Sequence[str] = (),
        by: str = TIME_AXIS,
        kind: str = SLIDING,
        size: str | int | None = None,
        advance: str | int | None = None,
        offset: str | int | None = None,
        gap: str | int | None = None,
        grace: str | None = None,
        retention: str | None = None,
        retention_count: int | None = None,
        idle: str = "1 minute",
        emit: Emit | None = None,
        schema: Mapping[str, str] | None = None,
        beyond_retention: str = DEAD_LETTER,
        max_future_skew: str | None = None,
        downstream: Downstream | None = None,
        batch: int = 1,
        retention_time: str | None = None,
    ) -> None:
        from sessionlake.standalone.contents import join_config  # noqa: PLC0415 (an import of this class needs no pydantic)

        self._sides = {LEFT: dict(left), RIGHT: dict(right)}
        self._config = join_config(
            self._sides,
            (emit or Emit()).content,
            max_future_skew,
            on=list(on),
            by=by,
            kind=kind,
            size=size,
            advance=advance,
            offset=offset,
            gap=gap,
            grace=grace,
            retention=retention_of(retention, retention_time),
            retention_count=retention_count or None,
            idle=idle,
            beyond_retention=beyond_retention,
        )
        super().__init__(directory, self._definition, schema, downstream, batch)

    def _definition(self, made: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the definition, with the default of grace that the directory was made with."""
        if made.get("grace_us", self._config.grace_us) != self._config.grace_us:
            self._config = self._config.with_grace(made["grace_us"])
        spec = self._build({}).spec
        names = (
            "by",
            "kind",
            "size",
            "advance",
            "offset",
            "gap",
            "grace_us",
            "retention_us",
            "retention_count",
            "idle_us",
        )
        sides = {f"{side}.{name}": value for side, given in self._sides.items() for name, value in given.items()}
        settings = {name: getattr(spec, name) for name in names}
        on = [list(pair) for pair in spec.on]
        return {"layout": STATE_LAYOUT, "on": on, **sides, **settings, "emit": asdict(spec.emit)}

    def add_message(
        self, side: str, message: Row, *, position: int | None = None, partition: int = 0, clock_us: int | None = None
    ) -> None:
        """Add a message to "left" or "right"; else as `WindowedAggregator.add_message`, positions being a side's own."""
        self._add_one(_side(side), message, position, partition, clock_us)

    def add_messages(
        self,
        side: str,
        table: pa.Table,
        *,
        positions: Positions | None = None,
        partitions: Positions | int = 0,
        clock_us: int | None = None,
    ) -> None:
        """Add the rows of a table to a side as one batch; else as `WindowedAggregator.add_messages`."""
        self._add_table(_side(side), table, positions, partitions, clock_us)

    def positions(self, side: str) -> dict[int, int]:
        """Return by partition the last position of a side that is flushed. After a crash, add the messages after it."""
        return self._positions(_side(side))

    def get_windows(
        self,
        side: str,
        start: int,
        end: int,
        *,
        join_keys: Sequence[Any] | None = None,
        session_key: Any = None,
    ) -> list[dict[str, Any]]:
        """Return the windows of a side that overlap [start, end], by start, as far as its messages are kept.

        A window is, of tumbling and hopping joins, one with a message of the side; of session joins a session, which messages
        of both sides make. A sliding join has a window for each message: the message and those at most the side's size before it.
        Each has window_key, window_start, window_end (exclusive on a grid, else inclusive), event_count, first_position and
        last_position of the side's messages. Bounds are microseconds, or numbers by count. Keys are as in `get_messages`.
        """
        self._require_settled()
        names, found = self._scanned(_side(side), -_FOREVER, _FOREVER, self._keys(side, join_keys, session_key))
        others: tuple[list[bytes], Messages] = ([], Messages.empty())
        if self._operator.spec.kind == SESSION:
            others = self._scanned(other_of(side), -_FOREVER, _FOREVER, self._keys(side, join_keys, session_key))
        return side_windows(self._operator.spec, side, (names, found), others, start, end)

    def get_messages(
        self,
        side: str,
        start: int,
        end: int,
        *,
        join_keys: Sequence[Any] | None = None,
        session_key: Any = None,
    ) -> list[dict[str, Any]]:
        """Return the messages of a side in [start, end] that are kept, by place: key, time_us, position, and its columns.

        The range is of times in microseconds; by count of the messages' numbers in their partitions, from 1. `join_keys` are
        values of the equal fields in the order of `on`, `session_key` that of the first of them, whose others `join_keys`
        then are: all of them name a key, fewer are the beginning of some, which are looked for in all that is in the range.
        """
        self._require_settled()
        names, found = self._scanned(_side(side), start, end, self._keys(side, join_keys, session_key))
        return rows_of(self._operator.spec.side(side), names, found)

    def _scanned(self, side: str, low: int, high: int, key: tuple[str, bool] | None) -> tuple[list[bytes], Messages]:
        """Return the kept messages of a side, and their keys: of all keys, of one key, or of the keys that begin with a text."""
        least = JoinProgress.of(self._stream.state).horizon(side)
        whole = key is not None and key[1]
        name = key[0].encode() if key is not None else None
        names, found = self._store.scan(_LETTERS[side], max(low, least), high, name if whole else None)
        if name is not None and not whole:
            begins = np.array([text.startswith(name) for text in names], bool)
            found = found.take(np.flatnonzero(begins[found.codes]))
        return names, found

    def _keys(self, side: str, join_keys: Sequence[Any] | None, session_key: Any) -> tuple[str, bool] | None:
        """Return the text of a key, and whether it is all of it; None if nothing is given."""
        if join_keys is None and session_key is None:
            return None
        given = [*([] if session_key is None else [session_key]), *(join_keys or ())]
        fields = self._config.keys[side]
        if not 0 < len(given) <= len(fields):
            raise ConfigError(
                f"join_keys: {given!r} are {len(given)} values, and `on` has {len(fields)} fields; give them in its order"
            )
        events = self._operator.events(side)
        as_ = events.compared_as or [None] * len(fields)
        texts = [
            text_of(pa.array([value], events.columns.types[name]), type_)[0].as_py()
            for name, type_, value in zip(fields, as_, given, strict=False)
        ]
        if len(fields) == 1:
            return texts[0], True
        quoted = "[" + ",".join(json.dumps(text, ensure_ascii=False) for text in texts)
        return (f"{quoted}]", True) if len(texts) == len(fields) else (f"{quoted},", False)

    def _opened(self, operator: Operator[Any], part: Part) -> MessageStore:
        """Return the store of messages, which are asked for by time, too."""
        store: MessageStore = super()._opened(operator, part)
        store.index()
        return store

    def _build(self, types: Mapping[str, Types]) -> Joiner:
        from sessionlake.local.source import local_operator  # noqa: PLC0415 (as above)

        given = {side: {**types.get(side, {}), **self._declared} for side in SIDES}
        return cast("Joiner", local_operator(self._config, given))


def _side(side: str) -> str:
    if side not in SIDES:
        raise ConfigError(f"side: {side!r} is unknown; write {LEFT} or {RIGHT}")
    return side
