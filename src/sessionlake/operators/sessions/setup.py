"""Sessions for jobs: the spec of a pipeline that has batches, and whether a config still fits its tables."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.operators.sessions.kind import Sessions
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.sources.registry import sources_of
from sessionlake.stream import pipeline
from sessionlake.warehouse.batch_commit import BatchCommit


def build_spec(spark: SparkSession, config: Config, pinned: Mapping[str, str] | None) -> SessionizerSpec:
    """Return what workers need; column types are pinned by the first commit, or else read off the source."""
    return Sessions.make(config, sources_of(spark, config), pinned).spec


def check_settings(config: Config, last: BatchCommit | None) -> None:
    """Refuse a config whose settings are not those the tables were made with."""
    pipeline.check_settings(config, last, Sessions.bound_settings())
