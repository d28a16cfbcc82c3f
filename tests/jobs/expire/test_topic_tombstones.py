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


def test_tombstones_of_a_table_need_records_with_the_rows_keys(tmp_path: Path) -> None:
    spark: Any = None
    source = {
        "kind": "kafka",
        "topic": "t",
        "bootstrap_servers": "localhost:9092",
        "format": "json",
        "tombstones": True,
        "types": {"v": "long"},
    }
    raw: dict[str, Any] = {
        "pipeline": {"name": "test", "warehouse": "w"},
        "source": source,
        "event": {"key": "k", "time": "_timestamp"},
        "table": {"columns": ["v"]},
    }
    with pytest.raises(ConfigError, match=r"event\.key is 'k'; write event\.key = '_key'"):
        require_topic(spark, parse_config(raw, tmp_path))
