"""A key of several columns forgotten: neither the key nor a text of it alone is left in any file, and nothing of other keys goes."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.joint_keys import joint_text
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.stream.run import run
from tests.jobs.forget.forget_support import traces
from tests.support import make_config, write_rows

GONE = "anna-of-acme"
"""The least of the users, so that bounds of files have it."""
USERS = [GONE, "carl-of-acme", "zoe-of-acme"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_text_of_a_forgotten_key_is_left(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path, event={"key": ["tenant", "user"]}, pipeline={"archive": True})
    rows = [
        {"tenant": t, "user": u, "time_us": at, "v": 1} for t in ("acme", "else") for u in USERS for at in (0, 5, 90)
    ]
    write_rows(tmp_path, "1.json", rows)
    run(spark, config, once=True)
    compact(spark, config)
    write_rows(tmp_path, "2.json", [{**row, "time_us": 400 + row["time_us"]} for row in rows])
    run(spark, config, once=True)
    compact(spark, config)
    expire(spark, config, where="user = 'zoe-of-acme' and tenant = 'else'")
    run(spark, config, once=True)
    assert traces(config, [GONE])
    for attempt in ("f", "g"):
        report = forget(spark, config, [joint_text([t, GONE]) for t in ("acme", "else")], run_id=attempt)
    assert report.counts["found"] == 0
    assert traces(config, [GONE]) == []
    left = sessionlake.read(config).project("tenant, user").distinct().fetchall()
    assert sorted(left) == sorted([("acme", "carl-of-acme"), ("acme", "zoe-of-acme"), ("else", "carl-of-acme")])
