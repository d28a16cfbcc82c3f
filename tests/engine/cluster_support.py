"""A pipeline of many small, skewed batches, for clusters."""

import random
import shutil
from pathlib import Path
from typing import Any

from sessionlake.config.load import Config
from tests.engine.slow_merge import SLOW_KEY
from tests.support import make_config, write_rows

SHARDS, BATCHES = 8, 24


def cluster_config(root: Path, store: str = "${SESSIONLAKE_STORE}") -> Config:
    shutil.copy(Path(__file__).with_name("slow_merge.py"), root)
    return make_config(
        root,
        pipeline={"shards": SHARDS, "store": store, "code": "."},
        session={"gap": "10 us", "grace": "60 us", "retention": "200 us"},
        aggregates={"total": "sum(v)", "last": "last(v)", "slow": "slow_merge:Slow"},
    )


def write_batches(root: Path) -> None:
    """Write a file a batch: all shards get keys, half of the events are one key's; one session never ends; nothing is late."""
    rng = random.Random(5)
    for batch in range(BATCHES):
        keys = [f"k{number}" for number in range(60)] + ["hot"] * 60
        rows: list[dict[str, Any] | str] = [
            {"key": key, "time_us": 1000 + 20 * batch + rng.randrange(-20, 20), "v": rng.randrange(1000)}
            for key in keys
        ]
        rows += [{"key": SLOW_KEY, "time_us": 1000 + 20 * batch + at, "v": 1} for at in (0, 10)]
        rng.shuffle(rows)
        write_rows(root, f"{batch:03}.json", rows)
