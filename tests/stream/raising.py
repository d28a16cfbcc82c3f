"""A user's class that raises at some events, and at some merges."""

from typing import Any


class Raising:
    columns = "v"
    value_type = "long"

    def initializer(self) -> int:
        return 0

    def aggregator(self, _key: str, event: dict[str, Any], aggregate: int) -> int:
        return aggregate + 10 // event["v"]

    def merger(self, _key: str, left: int, right: int) -> int:
        if {left, right} == {1, 2}:
            raise ValueError("one and two")
        return left + right
