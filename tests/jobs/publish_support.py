"""Rows for pipelines that publish to a topic."""

import random
from pathlib import Path

import deltalake
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.jobs.compact import compact
from sessionlake.warehouse.changelog import changelog_of
from tests.operators_table import OperatorLake
from tests.sources.kafka_support import Row

US = 1_000_000


def some_rows(seed: int, count: int = 40) -> list[Row]:
    rng = random.Random(seed)
    base = 1_700_000_000 * US
    return [
        {"key": f"user-{rng.randrange(5)}", "time_us": base + rng.randrange(600 * US), "v": rng.randrange(9)}
        for _ in range(count)
    ]


def trim(spark: SparkSession, config: Config) -> None:
    """Compact twice: a run trims what the one before it has folded, with `compact.safety` of nothing."""
    for _ in range(2):
        compact(spark, config)


def vacuum_changes(config: Config) -> None:
    """Remove the files that the changelog has no more, as VACUUM does."""
    changelog = deltalake.DeltaTable(f"{config.pipeline.warehouse}/{changelog_of(config).changes}")
    there = set(changelog.file_uris())
    folder = Path(changelog.table_uri.removeprefix("file://"))
    gone = [file for file in folder.glob("*.parquet") if str(file) not in there]
    assert gone, "nothing was trimmed"
    for file in gone:
        file.unlink()


def with_sink(lake: OperatorLake, sink: str, name: str = "sink") -> Config:
    """Return the config of a lake's pipeline with a section of [sink], as text, in a file of this name."""
    path = lake.root / f"{name}.toml"
    path.write_text(f"{lake.path.read_text()}\n{sink}\n")
    return load_config(path)
