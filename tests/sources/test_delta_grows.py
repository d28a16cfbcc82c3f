"""A Delta table as a source whose columns change while a stream reads it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.config.load import Config
from sessionlake.errors import SourceError
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit
from tests.support import make_config


class StoppedError(Exception):
    """The end of a stream that a test has seen enough of."""


def append(spark: SparkSession, config: Config, rows: str, **options: str) -> None:
    writer = spark.sql(f"select * from values {rows}").write.format("delta").mode("append").options(**options)
    writer.save(config.source.path or "")


@pytest.fixture
def config(spark: SparkSession, tmp_path: Path) -> Config:
    made = make_config(tmp_path, source={"kind": "delta", "path": "table", "format": None})
    append(spark, made, "('a', 1L, 1.0D) as t(key, time_us, v)")
    return made


@pytest.mark.slow
def test_a_stream_goes_on_when_the_table_gets_a_column(spark: SparkSession, config: Config) -> None:
    def committed(batch: BatchCommit) -> None:
        if batch.batch_id == 2:
            raise StoppedError
        more = f"('a', {batch.batch_id + 2}L, 1.0D, 'x') as t(key, time_us, v, column_{batch.batch_id})"
        append(spark, config, more, mergeSchema="true")

    with pytest.raises(Exception, match=StoppedError.__name__):
        run(spark, config, on_commit=committed)
    assert [tuple(row) for row in read_sessions(spark, config).select("event_count", "total").collect()] == [(3, 3.0)]
    assert run(spark, config, once=True).counts["input"] == 0


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("select 'a' key, 5L time_us, 'one' v", "column 'v' of .* is now string, and was double"),
        pytest.param("select 'a' key, 5L time_us", "has no column 'v'", marks=pytest.mark.slow),
    ],
)
def test_a_column_that_is_gone_or_of_another_type_ends_it_in_one_line(
    spark: SparkSession, config: Config, table: str, message: str
) -> None:
    run(spark, config, once=True)
    spark.sql(table).write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        config.source.path or ""
    )
    with pytest.raises(SourceError, match=message) as raised:
        run(spark, config, once=True)
    assert "\n" not in str(raised.value)
