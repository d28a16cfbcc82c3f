"""Users' aggregates that keep the laws of a merge, and some that don't."""

# ruff: noqa: ARG002 (users' classes have arguments that they need not read)

import json
from typing import Any


class Largest:
    """Its `aggregator` takes no notice of the aggregate: that of one event is all that a pipeline asks for."""

    columns = "v"
    value_type = "long"

    def initializer(self) -> None:
        return None

    def aggregator(self, key: str, event: dict[str, Any], aggregate: object) -> Any:
        return event["v"]

    def merger(self, key: str, left: Any, right: Any) -> Any:
        return max((one for one in (left, right) if one is not None), default=None)


class Mean:
    """Its parts are kept apart, and rounded only for readers."""

    columns = ("v",)
    value_type = "double"

    def initializer(self) -> list[float]:
        return [0, 0]

    def aggregator(self, key: str, event: dict[str, Any], aggregate: list[float]) -> list[float]:
        return aggregate if event["v"] is None else [aggregate[0] + event["v"] / 3, aggregate[1] + 1]

    def merger(self, key: str, left: list[float], right: list[float]) -> list[float]:
        return [left[0] + right[0], left[1] + right[1]]

    def result(self, aggregate: list[float]) -> float | None:
        return aggregate[0] / aggregate[1] if aggregate[1] else None


class Tags(Mean):
    """Its aggregates are lists whose order depends on that of merges, but not their values."""

    value_type = "string"

    def initializer(self) -> list[Any]:
        return []

    def aggregator(self, key: str, event: dict[str, Any], aggregate: list[Any]) -> list[Any]:
        aggregate.append(event["v"])
        return aggregate

    def merger(self, key: str, left: list[Any], right: list[Any]) -> list[Any]:
        left.extend(right)
        return left

    def result(self, aggregate: list[Any]) -> Any:
        return json.dumps(sorted(aggregate, key=str))


class Distinct(Tags):
    """Its stored form is its own."""

    def serialize(self, aggregate: list[Any]) -> bytes:
        return json.dumps(sorted(set(aggregate), key=str)).encode()

    def deserialize(self, data: bytes) -> list[Any]:
        return list(json.loads(data))


class LongestText:
    columns = "tag"

    def reducer(self, left: str, right: str) -> str:
        return max(left, right, key=lambda text: (len(text), text))


class AverageOfAverages(Largest):
    """Not associative."""

    value_type = "double"

    def merger(self, key: str, left: Any, right: Any) -> Any:
        return left if right is None else right if left is None else (left + right) / 2


class Newest(Largest):
    """Not commutative."""

    def merger(self, key: str, left: Any, right: Any) -> Any:
        return right


class FirstThree(Tags):
    """It forgets what comes after three, so that the order decides: only more than three show it."""

    def merger(self, key: str, left: list[Any], right: list[Any]) -> list[Any]:
        return sorted(left, key=str) + sorted(right, key=str) if len(left) + len(right) <= 3 else left


class Raising(Largest):
    def merger(self, key: str, left: Any, right: Any) -> Any:
        return left + right  # None


class Rises:
    """As in Kafka Streams: each step needs the aggregate of the ones before it."""

    columns = ("v",)
    value_type = "long"

    def initializer(self) -> list[Any]:
        return [None, 0]

    def aggregator(self, key: str, event: dict[str, Any], aggregate: list[Any]) -> list[Any]:
        last, rises = aggregate
        now = event["v"]
        return [now, rises + (last is not None and now is not None and now > last)]

    def merger(self, key: str, left: list[Any], right: list[Any]) -> list[Any]:
        return [None, left[1] + right[1]]

    def result(self, aggregate: list[Any]) -> int:
        return int(aggregate[1])


class Total:
    columns = ("v",)
    value_type = "long"

    def initializer(self) -> int:
        return 0

    def aggregator(self, key: str, event: dict[str, Any], aggregate: int) -> int:
        return aggregate + (event["v"] or 0)

    def merger(self, key: str, left: int, right: int) -> int:
        return left + right

    def inverse(self, aggregate: int) -> int:
        return -aggregate


class TotalAndCount(Mean):
    """Its inverse forgets the count."""

    def inverse(self, aggregate: list[float]) -> list[float]:
        return [-aggregate[0], aggregate[1]]


class AtSome(Total):
    """It raises at some rows, which are dead letters."""

    def aggregator(self, key: str, event: dict[str, Any], aggregate: int) -> int:
        return aggregate + int(event["v"])
