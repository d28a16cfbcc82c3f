"""A key forgotten beside the live stream of each operator, in each of its forms: it is nowhere, and the rows of other keys are the oracle's."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.jobs.forget import forget
from tests.engine.crash_support import FIRST, SECOND, events, run_once, write_events
from tests.jobs.forget.forget_support import stream, traces, until
from tests.operator_forms import FORMS
from tests.operator_lake import OperatorLake
from tests.operators_table import without_revisions

KEY = "key7"


def write_without_the_key(lake: OperatorLake, number: int) -> None:
    lines = [line for line in events(number) if line == "{broken" or json.loads(line)["key"] != KEY]
    write_events(lake.events / f"{number}.json", number, lines)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FORMS)
def test_forget_beside_a_live_stream(spark: SparkSession, tmp_path: Path, name: str) -> None:
    lake = FORMS[name](tmp_path / "lake", tmp_path / "events")
    lake.write_files(FIRST)
    run_once(spark, lake)
    assert traces(lake.config, [KEY])
    with stream(lake.path, lake.config) as process:
        report = forget(spark, lake.config, [KEY], run_id="f")
        # Whether logs have the key in bounds of files, and so the run is to be repeated, depends on the other keys of the files.
        assert sum(count for name, count in report.counts.items() if name.startswith("rows_of_")) > 0
        for number in SECOND:
            write_without_the_key(lake, number)
            lines = sum(len(file.read_text().splitlines()) for file in lake.events.glob("[0-9]*.json"))
            until(process, lambda lines=lines: lake.totals()["input"] >= lines)
    run_once(spark, lake)
    assert forget(spark, lake.config, [KEY], run_id="f").counts["found"] == 0
    assert traces(lake.config, [KEY]) == []
    answer = [row for row in lake.answer() if KEY not in row]
    assert without_revisions(lake, lake.sent()) == without_revisions(lake, answer)
