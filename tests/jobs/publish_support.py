"""Rows for pipelines that publish to a topic."""

import random

from tests.sources.kafka_support import Row

US = 1_000_000


def some_rows(seed: int, count: int = 40) -> list[Row]:
    rng = random.Random(seed)
    base = 1_700_000_000 * US
    return [
        {"key": f"user-{rng.randrange(5)}", "time_us": base + rng.randrange(600 * US), "v": rng.randrange(9)}
        for _ in range(count)
    ]
