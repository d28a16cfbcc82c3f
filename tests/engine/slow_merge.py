"""A user's aggregate that makes one key's shard slow where the environment asks for it; found in pipeline.code."""

import os
import time
from typing import Any

SLOW_KEY = "slow4"
"""Of shard 0, so that other shards of its executor have to wait."""
SLOW_AT = (12, 14)
"""How many events the key's one session has when a merge takes long: in the sixth and the seventh batch."""


class Slow:
    columns = ("v",)
    value_type = "long"

    def initializer(self) -> int:
        return 0

    def aggregator(self, key: str, event: dict[str, Any], aggregate: int) -> int:
        assert key
        assert event
        return aggregate + 1

    def merger(self, key: str, left: int, right: int) -> int:
        if key == SLOW_KEY and left + right in SLOW_AT:
            time.sleep(float(os.environ.get("SLOW_MERGE_SECONDS", "0")))
        return left + right
