"""Times by a format in Spark's letters: against Spark and Python's strftime."""

import pickle
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.columnar.time_formats import TimeFormat
from sessionlake.sources.decoding.casting import parse_times
from tests.support import examples

FORMATS = {
    "dd/MMM/yyyy:HH:mm:ss Z": "%d/%b/%Y:%H:%M:%S %z",
    "yyyy-MM-dd\tHH:mm:ss": "%Y-%m-%d\t%H:%M:%S",
    "yyyyMMddHHmmss": "%Y%m%d%H%M%S",
    "MMMM d, yyyy h:mm:ss a": "%B %d, %Y %I:%M:%S %p",
    "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxx": "%Y-%m-%dT%H:%M:%S.%f%z",
    "dd.MM.yyyy": "%d.%m.%Y",
    "''yyyy'' M/d HH 'o''clock' m.s": "'%Y' %m/%d %H o'clock %M.%S",
}
MOMENTS = st.datetimes(datetime(1000, 1, 2), datetime(9998, 12, 30))  # noqa: DTZ001
YEAR_1 = datetime(1, 1, 1, tzinfo=UTC).timestamp()
EDGES = (
    "29/Nov/2026:05:01:03 +0100", "29/nov/2026:05:01:03 -0130", "31/Feb/2026:00:00:00 +0000", "29/Feb/2024:23:59:59 +1800",
    "29/Feb/2023:23:59:59 +0000", "29/Feb/2024:23:59:59 +1801", "29/Feb/2024:24:00:00 +0000", "9/Feb/2024:23:59:59 +0000", " 29/Nov/2026:05:01:03 +0100",
    "29/Nov/2026:05:01:03 +0100 ", "29/Nov/2026:05:01:03 Z", "29/Nov/0000:05:01:03 +0000", "29/Nov/2026:05:01:60 +0000", "29/Nov/2026:05:01:03 +0160", "", "x",
    "2026-11-29T05:01:03.1Z", "2026-11-29T05:01:03.123456789+05:30", "2026-11-29T05:01:03.+05:30", "2026-11-29t05:01:03.1234567890Z", "2026-11-29T05:01:03.12-08",
    "1/2/2026 0:05:09 AM", "1/2/2026 12:05:09 am", "01/002/2026 12:05:09 PM", "1/2/2026 13:05:09 PM", "-1/2/2026 1:05:09 PM", "13/2/2026 1:05:09 PM",
    "20260101", "20261301", "99-01-02", "00-12-31", "1-12-31", "2026-11-29 05+01", "2026-11-29 05+0130", "2026-11-29 05Z", "2026-11-29 05-00",
)  # fmt: skip
EDGE_FORMATS = ("dd/MMM/yyyy:HH:mm:ss Z", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSSXXX", "M/d/yyyy h:mm:ss a", "yyyyMMdd", "yy-MM-dd", "yyyy-MM-dd HHX", "yyyy-MM-dd HHx")  # fmt: skip


def parsed(form: str, texts: list[str | None]) -> list[datetime | None]:
    micros, bad = parse_times(pa.array(texts, pa.string()), TimeFormat(form))
    first = datetime(1970, 1, 1, tzinfo=UTC)
    return [None if wrong else first + timedelta(microseconds=int(at)) for at, wrong in zip(micros, bad, strict=True)]


@examples(100)
@given(st.lists(MOMENTS, min_size=1, max_size=5), st.sampled_from(sorted(FORMATS)), st.integers(-1080, 1080))
def test_times_that_python_writes_are_read(moments: list[datetime], form: str, minutes: int) -> None:
    style = FORMATS[form]
    east = timedelta(minutes=minutes if "%z" in style else 0)
    zoned = [moment.replace(tzinfo=UTC) for moment in moments]
    sign, size = "-" if minutes < 0 else "+", abs(minutes)
    offset = f"{sign}{size // 60:02}{size % 60:02}"
    texts = [(at + east).strftime(style.replace("%z", offset).replace("%Y", f"{(at + east).year:04}")) for at in zoned]
    least = timedelta(microseconds=1) if "%f" in style else timedelta(seconds=1)
    day = "H" not in form and "h" not in form
    expected = [
        at.replace(hour=0, minute=0, second=0, microsecond=0) if day else at - (at - at.min.replace(tzinfo=UTC)) % least
        for at in zoned
    ]
    assert parsed(form, [*texts, None, "no time"]) == [*expected, None, None]


def test_edges_are_as_in_spark(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in EDGES], "t string")
    columns = [
        F.try_to_timestamp("t", F.lit(form)).cast("double").alias(str(number))
        for number, form in enumerate(EDGE_FORMATS)
    ]
    found = frame.coalesce(1).select("t", *columns).collect()
    for number, form in enumerate(EDGE_FORMATS):
        ours = parsed(form, list(EDGES))
        # Spark has a year 0, and events do not.
        spark_s = [None if row[number + 1] is None or row[number + 1] < YEAR_1 else row[number + 1] for row in found]
        assert [None if at is None else at.timestamp() for at in ours] == pytest.approx(spark_s, abs=1e-5), form


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("YYYY-MM-dd", "has 'YYYY', which is not listed; write some of yyyy, y, yy, MM"),
        ("yyyy-MM-dd EEE", "has 'EEE', which is not listed"),
        ("yyyyMd", "has 'M' behind another number; write a sign between them, or two letters"),
        ("yyyy-MM-dd [HH]", "has '[', which is not listed; put it in quotes"),
        ("HH:mm", "has no year; write for example yyyy-MM-dd HH:mm:ss"),
        ("yyyy-MM-dd hh", "has an hour of 12 without AM or PM; write hh:mm a, or HH:mm"),
        ("yyyy-MM-dd MM", "has 'MM' and 'MM'; write one of them"),
        ("yyyy-MM-dd 'at", "has an open quote; close it, or write '' for a quote"),
    ],
)
def test_other_formats_are_refused_in_words(form: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        TimeFormat(form).check()


def test_a_format_is_pickled_by_its_text() -> None:
    form = TimeFormat("yyyy-MM-dd")
    form.parse(pa.array(["2026-01-01"]))
    assert pickle.loads(pickle.dumps(form)) == form  # noqa: S301
