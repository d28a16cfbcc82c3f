"""Tombstones by way of the topic are for those who ask for them."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError
from sessionlake.jobs.expire.topic import require_topic


def test_expire_to_a_topic_whose_tombstones_are_not_read_is_refused(tmp_path: Path) -> None:
    spark: Any = None
    source = {"kind": "kafka", "topic": "t", "bootstrap_servers": "localhost:9092", "format": "json"}
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "w"},
        "source": source,
        "event": {"key": "k", "time": "t"},
        "session": {"gap": "1 minute"},
    }
    with pytest.raises(ConfigError, match=r"source\.tombstones is false"):
        require_topic(spark, parse_config(raw, tmp_path))
