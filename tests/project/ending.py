"""A user's class that ends its process for as long as a file is there."""

import os
from pathlib import Path
from typing import Any


class Ending:
    columns = "v"
    value_type = "long"

    def initializer(self) -> int:
        return 0

    def aggregator(self, _key: str, event: dict[str, Any], aggregate: int) -> int:
        if Path(os.environ["SESSIONLAKE_TEST_ENDS"]).exists():
            os._exit(1)
        return aggregate + event["v"]

    def merger(self, _key: str, left: int, right: int) -> int:
        return left + right
