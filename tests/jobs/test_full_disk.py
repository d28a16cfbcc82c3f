"""A job that can't write says so in one line, beside which Spark tells nothing."""

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import load_config
from sessionlake.stream.run import run
from tests.support import write_config, write_rows

ROWS = 20_000
LARGEST = 3_000_000
"""Bytes of a file from which its writer is refused: less than the rows take, more than all else."""


@pytest.mark.slow
def test_a_sink_that_cannot_be_written_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    path = write_config(tmp_path, sink={"delta": {"path": "plain"}})
    keys = random.Random(1)
    rows = [{"key": keys.randbytes(500).hex(), "time_us": number, "v": 1} for number in range(ROWS)]
    write_rows(tmp_path, "0.json", rows)
    run(spark, load_config(path), once=True)
    ended = subprocess.run(
        [sys.executable, "-m", "sessionlake", "publish", str(path), "--once"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    (line,) = ended.stderr.splitlines()
    assert line.startswith("sessionlake: "), line
    assert "File too large" in line
