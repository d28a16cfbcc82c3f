"""A user's aggregate, as docs/aggregates.md shows it."""

from typing import Any


class NetLines:
    columns = ("added", "deleted")
    value_type = "long"

    def initializer(self) -> int:
        return 0

    def aggregator(self, key: str, event: dict[str, Any], aggregate: int) -> int:
        assert key
        return aggregate + (event["added"] or 0) - (event["deleted"] or 0)

    def merger(self, key: str, left: int, right: int) -> int:
        assert key
        return left + right


class Everything(NetLines):
    columns = ()
    value_type = "string"

    def aggregator(self, key: str, event: dict[str, Any], aggregate: int) -> int:
        return super().aggregator(key, {"deleted": 0, **event}, aggregate)
