"""Times of zones in columns, against Python's one after the other, and Spark's at each change of each zone."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.columnar.zones import from_utc, to_utc

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (clocks of zones)
NAMES = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "Europe/Dublin",
]
BEFORE_1970 = {"Asia/Tehran", "Iran", "EET", "WET"}
"""Zones that time zone data of other years have changed after 1970, too."""
CHANGES = st.sampled_from(["2023-03-26 01", "2023-10-29 01", "2011-12-30 10", "2024-04-06 15"]).map(
    datetime.fromisoformat
)
TIMES = st.integers(-(2**55), 2**57) | st.builds(
    lambda change, seconds: (change - EPOCH) // timedelta(microseconds=1) + seconds * 1_000_000,
    CHANGES,
    st.integers(-90_000, 90_000),
)


@given(st.lists(st.tuples(st.none() | TIMES, st.none() | st.sampled_from(NAMES)), min_size=1, max_size=20))
def test_columns_are_what_pythons_clocks_show(rows: list[tuple[int | None, str | None]]) -> None:
    times, zones = pa.array([us for us, _ in rows], pa.int64()), pa.array([zone for _, zone in rows], pa.string())
    for (us, zone), ours, back in zip(
        rows, from_utc(times, zones).to_pylist(), to_utc(times, zones).to_pylist(), strict=True
    ):
        if us is None or zone is None:
            assert (ours, back) == (None, None)
            continue
        local = EPOCH + timedelta(microseconds=us)
        shown = local.replace(tzinfo=UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        assert ours == (shown - EPOCH) // timedelta(microseconds=1)
        offset = local.replace(tzinfo=ZoneInfo(zone)).utcoffset()
        assert offset is not None
        assert back == us - offset // timedelta(microseconds=1)


def test_names_that_are_no_zone_and_sums_beyond_64_bits_are_null() -> None:
    times, zones = pa.array([0, 2**63 - 1, -(2**63), 2**63 - 1]), pa.array(["Berlin", "+01:00", "-01:00", "-01:00"])
    assert from_utc(times, zones).to_pylist() == [None, None, None, 2**63 - 1 - 3_600_000_000]
    assert to_utc(times, zones).to_pylist() == [None, 2**63 - 1 - 3_600_000_000, -(2**63) + 3_600_000_000, None]


@pytest.mark.slow
def test_each_change_of_each_zone_is_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    year = 365 * 86_400
    # Java's zones may be those of an earlier year.
    of_java = {*spark._jvm.java.time.ZoneId.getAvailableZoneIds()}  # type: ignore[union-attr,misc]
    names = sorted(
        name
        for name in available_timezones() & of_java
        if "/" in name and not name.startswith(("Etc", "posix", "right")) and name not in BEFORE_1970
    )
    rows = []
    for name in names:
        zone, hours = ZoneInfo(name), range(0, 70 * year, 7 * 86_400)
        offsets = [datetime.fromtimestamp(second, zone).utcoffset() for second in hours]
        for second, before, after in zip(hours, offsets, offsets[1:], strict=False):
            if before != after:
                rows += [(name, (second + near * 1800) * 1_000_000) for near in range(0, 7 * 48, 1)]
    table = pa.table(
        {"z": [name for name, _ in rows], "t": pa.array([us for _, us in rows]).cast(pa.timestamp("us", "UTC"))}
    )
    pq.write_table(table, tmp_path / "t.parquet")
    asked = ["unix_micros(from_utc_timestamp(t, z)) as f", "unix_micros(to_utc_timestamp(t, z)) as b"]
    theirs = spark.read.parquet(str(tmp_path / "t.parquet")).coalesce(1).selectExpr(*asked).toArrow()
    times = table["t"].cast(pa.int64())
    assert from_utc(times, table["z"]).equals(theirs["f"].combine_chunks())
    assert to_utc(times, table["z"]).equals(theirs["b"].combine_chunks())
