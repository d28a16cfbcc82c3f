"""The kinds whose events have their place by their time alone, so that events can be read again in any order."""

from typing import cast

from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.operators.registry import kind_of
from sessionlake.operators.sessions.kind import Sessions
from sessionlake.operators.windows.kind import Windows
from sessionlake.sources.registry import sources_of
from sessionlake.stream.settings import check_settings
from sessionlake.warehouse.batch_commit import BatchCommit


def kind_by_time(spark: SparkSession, config: Config, last: BatchCommit) -> Sessions | Windows:
    """Return the kind of a pipeline that `require_known` let `backfill` or `redeem` at; `last` pins the columns' types.

    Raises PipelineStateError where the tables were made with other settings.
    """
    kind = cast("type[Sessions | Windows]", kind_of(config))
    check_settings(config, last, kind.bound_settings())
    return kind.make(config, sources_of(spark, config), last.settings.types)
