"""Users' classes that combine two aggregates: KIP-94's initializer, aggregator and merger, and its reducer."""

from abc import abstractmethod
from typing import Any, Protocol

import pyarrow as pa

from sessionlake.aggregates.base import States, merge_shared
from sessionlake.aggregates.custom import Custom, json_of_value
from sessionlake.aggregates.scalars import BYTES
from sessionlake.columnar.arrays import Groups
from sessionlake.errors import ConfigError
from sessionlake.user_code import NOT_THEIRS

KIP_94 = ("initializer", "aggregator", "merger")


class SessionAggregator(Protocol):
    """The methods of a user's class that folds events; `merger` must be associative and commutative (KIP-94).

    >>> class Largest:
    ...     columns = "price"
    ...     value_type = "double"
    ...
    ...     def initializer(self):
    ...         return None
    ...
    ...     def aggregator(self, key, event, aggregate):
    ...         return event["price"]
    ...
    ...     def merger(self, key, left, right):
    ...         return max((price for price in (left, right) if price is not None), default=None)
    >>> largest = Largest()
    >>> prices = [largest.aggregator("k", {"price": price}, largest.initializer()) for price in (2.5, 4.0)]
    >>> largest.merger("k", *prices)
    4.0

    Optional attributes: `columns`, the event columns that `aggregator` reads (default: every column of the source);
    `value_type`, one of long, double, string, boolean (default: string, the JSON text of the result);
    `result(aggregate)`, the value users see (default: the aggregate); `inverse(aggregate)`, the aggregate that takes it back:
    merged with it, it gives that of no events (default: rows can't be taken back); `serialize(aggregate) -> bytes` and
    `deserialize(bytes)` (default: JSON).
    """

    def initializer(self) -> Any:
        """Return the aggregate of no events."""

    def aggregator(self, key: str, event: dict[str, Any], aggregate: Any) -> Any:
        """Return the aggregate with one more event. `aggregate` is always the result of `initializer`; `merger` does the rest."""

    def merger(self, key: str, left: Any, right: Any) -> Any:
        """Return the aggregate of two merged sessions."""


class Merging(Custom):
    """An aggregate by a user's class that merges two aggregates into one.

    Its Python code runs once for each event and once for each merge.
    """

    state = (BYTES,)
    spans_keys = False
    merges: str
    """The user's method that combines two aggregates."""

    @abstractmethod
    def _of_two(self, key: str, left: Any, right: Any) -> Any:
        """Combine two aggregates."""

    def merge(self, states: States, groups: Groups) -> States:
        """Merge each group's aggregates in turn."""
        return merge_shared(states, groups, self._merge_groups)

    def _merge_groups(self, states: States, groups: Groups) -> States:
        parts = states[0].to_pylist()
        merged: list[bytes | None] = []
        for key, start, size in zip(
            groups.keys().to_pylist(), groups.starts.tolist(), groups.sizes.tolist(), strict=True
        ):
            # Sorted, so an aggregate that is order-free only up to rounding has the same result on a rerun.
            try:
                some = sorted(part for part in parts[start : start + size] if part is not None)
                merged.append(self._merged(key, some) if some else None)
            except NOT_THEIRS:
                raise
            except BaseException as error:
                # No single row is to blame: each was good alone, and another batch would have merged other rows.
                raise self._raised(self.merges, error, str(key)) from error
        return [pa.array(merged, BYTES)]

    def _merged(self, key: str, parts: list[bytes]) -> bytes:
        total, *others = (self._load(part) for part in parts)
        for one in others:
            total = self._of_two(key, total, one)
        return self._dump(total)

    def value(self, states: States) -> pa.Array:
        """Return each aggregate's result."""
        result = getattr(self.user, "result", lambda aggregate: aggregate)
        try:
            values = [None if part is None else result(self._load(part)) for part in states[0].to_pylist()]
        except NOT_THEIRS:
            raise
        except BaseException as error:
            raise self._raised("result", error) from error
        return self._column("result", values)


class Folded(Merging):
    """An aggregate by a user's class of KIP-94's three methods."""

    merges = "merger"

    def __init__(self, name: str, path: str, directory: str | None, user: SessionAggregator) -> None:
        super().__init__(name, path, directory, user)
        try:
            self._load(self._dump(user.initializer()))
        except NOT_THEIRS:
            raise
        except BaseException as error:
            raise ConfigError(
                f"aggregates.{name}: the result of {path}.initializer() can't be stored ({error}); "
                "return JSON values or add serialize and deserialize"
            ) from error

    def _lifted(self, keys: list[str], rows: list[dict[str, Any]]) -> list[bytes | None]:
        user = self.user
        return [self._dump(user.aggregator(key, row, user.initializer())) for key, row in zip(keys, rows, strict=True)]

    def _of_two(self, key: str, left: Any, right: Any) -> Any:
        return self.user.merger(key, left, right)

    def inverted(self, states: States) -> States | None:
        """Return the inverses that the user's class computes; None if it can't."""
        inverse = getattr(self.user, "inverse", None)
        if not callable(inverse):
            return None
        try:
            parts = [None if part is None else self._dump(inverse(self._load(part))) for part in states[0].to_pylist()]
        except NOT_THEIRS:
            raise
        except BaseException as error:
            raise self._raised("inverse", error) from error
        return [pa.array(parts, BYTES)]


class Reducer(Protocol):
    """The user's method that reduces two values to a value of the same type (KIP-94's `reduce`).

    `reducer` must be associative and commutative. The optional attributes are those of SessionAggregator.

    >>> class LongestText:
    ...     columns = "text"
    ...
    ...     def reducer(self, left, right):
    ...         return max(left, right, key=lambda text: (len(text), text))
    >>> LongestText().reducer("a", "bcd")
    'bcd'
    """

    def reducer(self, left: Any, right: Any) -> Any:
        """Return one value for two. If `columns` names a single column, a value is a value of it; else a dict of the row."""


class Reduced(Merging):
    """An aggregate by a user's class with `reducer`: an event's value is its row, or the value of its single column if not null."""

    merges = "reducer"
    as_json = staticmethod(json_of_value)

    def _lifted(self, keys: list[str], rows: list[dict[str, Any]]) -> list[bytes | None]:
        del keys
        if len(self.inputs) != 1:
            return [self._dump(row) for row in rows]
        values = [row[self.inputs[0]] for row in rows]
        return [None if value is None else self._dump(value) for value in values]

    def _of_two(self, key: str, left: Any, right: Any) -> Any:
        del key
        return self.user.reducer(left, right)
