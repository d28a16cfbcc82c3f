"""A user's class that never comes back from an event."""

import time
from typing import Any


class Hanging:
    columns = "v"
    value_type = "long"

    def initializer(self) -> int:
        return 0

    def aggregator(self, _key: str, event: dict[str, Any], aggregate: int) -> int:
        while event["v"] == 7:
            time.sleep(60)
        return aggregate + event["v"]

    def merger(self, _key: str, left: int, right: int) -> int:
        return left + right
