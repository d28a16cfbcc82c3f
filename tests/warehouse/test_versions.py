"""All versions of rows, merged in Python, are the rows that Spark merges: of every changelog, compacted or not."""

import shutil
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.columnar.newest import KEY, newest
from sessionlake.jobs.compact import compact
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.warehouse import versions
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions, versions_since
from sessionlake.warehouse.views import merged_rows, rows_meeting
from tests.engine.crash_support import FIRST, SECOND, run_once
from tests.jobs.compact.compact_support import DAY, nine_batches
from tests.operator_forms import FORMS
from tests.operators_table import LAKES
from tests.support import make_config


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in rows.to_pylist())


def check_versions(tables: Tables) -> int:
    """Compare the rows that Python merges with those that Spark does; return how many there are."""
    last = tables[tables.changelog.changes].last_commit()
    assert last is not None
    seen = 0
    for of in (tables.changelog, *tables.changelog.state_changelogs):
        for until in (None, last.metadata["batch_id"] - 1) if tables[of.snapshot].exists() else ():
            for deleted in {False, of.keeps_deletions}:
                merged = merged_rows(tables, of=of, until=until, deleted=deleted)
                names = sorted({*merged.columns} - {of.key} - ({*of.hidden} if not deleted else set()))
                columns = [F.col(of.key).alias(KEY), *(F.col(name) for name in names)]
                every = all_versions(tables, columns, of=of, until=until, deleted=deleted).toArrow()
                pieces = [every.slice(at, 7) for at in range(0, max(len(every), 1), 7)]
                wanted = counted(merged.select(columns).toArrow())
                assert counted(newest(pieces)) == wanted
                seen += len(wanted)
    return seen


@pytest.mark.slow
def test_rows_since_a_time_are_those_that_spark_finds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nine_batches(spark, tmp_path)
    config, of = make_config(tmp_path), CHANGELOG
    tables = Tables.of(spark, config)
    columns = [F.col(of.key).alias(KEY), F.unix_micros(of.start), F.unix_micros(of.end), F.col("revision")]

    def check(low_us: int, until: int | None = None) -> None:
        found = newest([versions_since(tables, columns, low_us, of=of, until=until).toArrow()])
        assert counted(found) == counted(rows_meeting(tables, low_us, of=of, until=until).select(columns).toArrow())

    check(-(1 << 60))
    check(15, until=5)
    check(5 * DAY + 5)  # within the millisecond to which statistics cut the last end
    compact(spark, config)
    check(3 * DAY + 1)
    check(1 << 60)
    monkeypatch.setattr(versions, "bound_us", lambda *_: F.lit(None).cast("bigint"))
    check(3 * DAY + 1)


@pytest.mark.slow
@pytest.mark.parametrize("operator", LAKES)
def test_a_restore_reads_the_newest_versions(spark: SparkSession, operator: str, tmp_path: Path) -> None:
    """Of every operator, from a changelog alone and from a snapshot with later changes, deletions among them."""
    lake = FORMS[operator](tmp_path / "lake", tmp_path / "events")
    seen = 0
    for number in (*FIRST, *SECOND):
        if number == SECOND[0]:
            compact(spark, lake.config)
            lake.correct(spark)
        lake.write_files([number])
        shutil.rmtree(lake.config.driver_store_dir, ignore_errors=True)
        run_once(spark, lake)
        seen += check_versions(Tables.of(spark, lake.config))
    assert seen
    lake.check()
