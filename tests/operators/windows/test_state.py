"""The changelog of the state is guarded as that of the windows is: what others do to it is noticed, and no plan is made over it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.observe.status import read_status
from sessionlake.stream.run import run
from tests.engine.crash_support import crash_at
from tests.operators.windows.window_support import tables_of, window_config
from tests.support import write_rows


def committed(spark: SparkSession, root: Path, *, archive: bool = True) -> Config:
    """Return the config of hopping windows, whose state lies apart, after a batch of one file, and with one file more."""
    config = window_config(root, kind="hopping", advance="5 us", archive=archive)
    write_rows(root, "0.json", [{"key": "a", "time_us": 203, "v": 1}, {"key": "b", "time_us": 204, "v": 1}])
    run(spark, config, once=True)
    write_rows(root, "1.json", [{"key": "a", "time_us": 220, "v": 1}])
    return config


@pytest.mark.slow
def test_rows_of_the_state_that_others_delete_stop_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    config = committed(spark, tmp_path)
    tables = tables_of(spark, config)
    assert read_status(config).reconciles
    spark.sql(f"delete from {tables['slice_changelog'].sql_name()} where slice_key = 'a'").collect()
    with pytest.raises(PipelineStateError, match=r"table 'slice_changelog': version \d+ is a DELETE"):
        run(spark, config, once=True)
    assert not read_status(config).reconciles


def test_a_running_stream_notices_before_its_next_commit(spark: SparkSession, tmp_path: Path) -> None:
    config = committed(spark, tmp_path)
    name = tables_of(spark, config)["slice_changelog"].sql_name()
    with pytest.raises(PipelineStateError, match="table 'slice_changelog'"):
        run(
            spark,
            config,
            once=True,
            gate=lambda _: spark.sql(f"delete from {name} where slice_key = 'a'").collect() and None,
        )


@pytest.mark.slow
def test_a_batch_whose_state_is_written_is_not_planned_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = committed(spark, tmp_path, archive=False)
    with crash_at(monkeypatch, "after_slices"), pytest.raises(Exception, match="CrashError"):
        run(spark, config, once=True)
    with pytest.raises(PipelineStateError, match="has written its rows of 'slice_changelog' already"):
        run(spark, config, once=True, give_up_plan=True)
    assert run(spark, config, once=True).counts["accepted"] == 1
