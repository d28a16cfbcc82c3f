"""What the commit protocol takes for granted about Spark and Delta, each claim tried on its own."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.errors import FencedError, PipelineStateError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse.data_file import DataFile
from sessionlake.warehouse.tables import Tables


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Tables:
    found = Tables(spark, str(tmp_path), CHANGELOG)
    found["t"].create(pa.schema([("id", pa.int64())]), "")
    return found


@pytest.mark.slow
def test_known_txn_version_is_skipped_silently(spark: SparkSession, tables: Tables) -> None:
    tables["t"].append(spark.range(3), "app", 5, {"commit_id": "a"})
    version = tables["t"].latest_version()
    for known in (5, 4):
        tables["t"].append(spark.range(7), "app", known, {"commit_id": "b"})
    assert (tables["t"].latest_version(), tables["t"].read().count()) == (version, 3)
    tables["t"].append(spark.range(7), "other app", 5, {"commit_id": "c"})
    assert tables["t"].read().count() == 10


@pytest.mark.slow
def test_append_without_rows_is_a_commit_with_metadata(spark: SparkSession, tables: Tables) -> None:
    tables["t"].append(spark.range(0), "app", 0, {"commit_id": "empty"})
    assert [c.metadata["commit_id"] for c in tables["t"].commits()] == ["empty"]
    tables["t"].append(spark.range(4), "app", 0, {"commit_id": "again"})
    assert tables["t"].read().count() == 0


@pytest.mark.slow
def test_batch_is_rerun_with_its_rows_and_its_clock(spark: SparkSession, tmp_path: Path) -> None:
    """A batch that failed comes again under the same id, with the same rows though more have come, at the same time."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    seen: list[tuple[int, list[int], set[datetime]]] = []

    def write(number: int) -> None:
        spark.range(number, number + 1).write.format("delta").mode("append").save(str(source))

    def run(*failing: int) -> None:
        def batch(rows: DataFrame, batch_id: int) -> None:
            found = rows.collect()
            seen.append((batch_id, sorted(r.id for r in found), {r.clock for r in found}))
            if batch_id in failing:
                raise RuntimeError("failing on purpose")

        stream = spark.readStream.format("delta").load(str(source)).withColumn("clock", F.current_timestamp())
        writer = stream.writeStream.foreachBatch(batch).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    write(0)
    run()
    write(1)
    with pytest.raises(StreamingQueryException, match="failing on purpose"):
        run(1)
    write(2)
    run()
    first, failed, rerun, third = seen
    assert [batch_id for batch_id, _, _ in seen] == [0, 1, 1, 2]
    assert failed == rerun
    assert (failed[1], third[1]) == ([1], [2])
    assert len(failed[2]) == 1
    assert max(first[2]) < min(failed[2])


@pytest.mark.slow
def test_a_stream_without_new_input_makes_no_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Batch ids are consecutive, and each comes to foreachBatch: the engine refuses a gap."""
    source, seen = tmp_path / "source", []
    for _ in range(2):
        spark.range(1).write.format("delta").mode("append").save(str(source))
        for _ in range(2):
            stream = spark.readStream.format("delta").load(str(source))
            writer = stream.writeStream.foreachBatch(lambda _, batch_id: seen.append(batch_id))
            writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
                availableNow=True
            ).start().awaitTermination()
    assert seen == [0, 1]


@pytest.mark.slow
def test_maintenance_commits_carry_no_metadata_of_ours(spark: SparkSession, tables: Tables) -> None:
    for number in range(2):
        tables["t"].append(spark.range(number, number + 1).coalesce(1), "app", number, {"batch_id": number})
    spark.sql(f"optimize delta.`{tables['t'].uri}`")
    last: Any = tables["t"].last_commit()
    assert (last.version, last.metadata["batch_id"], tables["t"].latest_version()) == (2, 1, 3)


def test_two_transactions_of_one_application_exclude_each_other(spark: SparkSession, tables: Tables) -> None:
    """`commit_files` names its application as read without asking for its state: that alone must make Delta refuse."""
    delta: Any = spark._jvm.org.apache.spark.sql.delta
    transaction = delta.DeltaLog.forTable(spark._jsparkSession, tables["t"].uri).startTransaction()
    transaction.readTxn().addOne("app")
    tables["t"].commit_files([], "app", 0, {"batch_id": 0}, after_version=-1)
    tables["t"].commit_files([], "other app", 0, {"batch_id": 0}, after_version=-1)
    actions = spark._jvm.scala.jdk.javaapi.CollectionConverters.asScala(spark._jvm.java.util.ArrayList()).toSeq()
    with pytest.raises(Py4JJavaError, match="DELTA_CONCURRENT_TRANSACTION"):
        transaction.commit(actions, getattr(delta, "DeltaOperations$ManualUpdate$").__getattr__("MODULE$"))


def test_batch_committed_during_our_transaction_is_fenced(tables: Tables) -> None:
    def files() -> Iterator[DataFile]:
        """Commit as another driver does, after our transaction has begun."""
        tables["t"].commit_files([], "app", 4, {"batch_id": 4}, after_version=-1)
        yield from ()

    with pytest.raises(FencedError, match="another driver committed batch 4"):
        tables["t"].commit_files(files(), "app", 4, {"batch_id": 4}, after_version=-1)


def test_batch_committed_since_is_fenced(tables: Tables) -> None:
    first = tables["t"].commit_files([], "app", 4, {"batch_id": 4}, after_version=-1)
    with pytest.raises(FencedError, match="another driver committed batch 4"):
        tables["t"].commit_files([], "app", 4, {"batch_id": 4}, after_version=first - 1)
    assert tables["t"].commit_files([], "app", 5, {"batch_id": 5}, after_version=first) == first + 1


def test_rows_of_the_driver_are_appended_once(tables: Tables) -> None:
    rows = pa.table({"id": [1, 2]})
    known = tables["t"].append_file(rows, "app", 4, after_version=tables["t"].latest_version())
    tables["t"].append_file(rows.slice(0, 0), "app", 5, after_version=known)
    with pytest.raises(FencedError, match="another driver committed batch 5"):
        tables["t"].append_file(rows, "app", 5, after_version=known)
    assert sorted(row["id"] for row in tables["t"].read().collect() if row["id"] is not None) == [1, 2]
    assert (tables["t"].rows(), tables["t"].newest_txn("app")) == (2, 5)


def test_partitioned_table_is_refused(tables: Tables) -> None:
    tables.spark.sql(f"create table {tables['p'].sql_name()} (id bigint, day date) using delta partitioned by (day)")
    with pytest.raises(PipelineStateError, match="is partitioned or maps its columns"):
        tables["p"].commit_files([], "app", 0, {"batch_id": 0}, after_version=-1)
