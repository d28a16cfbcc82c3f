"""The jobs on a processor: its output stays as it is, and jobs that need another order of the rows are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.errors import ConfigError, NotNeededError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.publish.records import to_records
from sessionlake.jobs.rebuild import rebuild
from sessionlake.jobs.redeem.job import redeem
from sessionlake.observe.status import read_status
from sessionlake.operators.process.table import OUTPUTS
from sessionlake.quality.run import run_quality
from sessionlake.serve.queries import query_tables
from sessionlake.serve.views import live_view
from sessionlake.stream.run import run
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import latest_changes
from tests.operators.process import processors
from tests.operators.process.pipeline_support import FILES, OUTPUT, TYPES, config_of, raw_of, rows_of
from tests.oracle.process import Machine
from tests.support import write_rows

Rows = list[tuple[Any, ...]]


def live(config: Config) -> Rows:
    columns = "output_key, position, ordinal, text, number, other, flag"
    return sorted(query_tables(config, f"select {columns} from outputs_live", 1000)[1])


def wanted(machine: Machine) -> Rows:
    return sorted((key, *place, *values.values()) for key, _, *place, values in machine.sent)


@pytest.mark.slow
def test_jobs_leave_the_output_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "process.toml"
    file.write_text(tomli_w.dumps(raw_of("Sessions")))
    (tmp_path / "events").mkdir()
    config, machine = load_config(file), Machine(processors.Sessions, TYPES, 30, 0)
    for number in range(len(FILES)):
        write_rows(tmp_path, f"{number}.json", rows_of(number))
        machine.batch(rows_of(number))
        run(spark, config, once=True)
        assert live(config) == wanted(machine)
        if number in {1, 2}:
            report = compact(spark, config, method="merge" if number == 1 else "rewrite")
            assert live(config) == wanted(machine)
    assert report.counts["outputs_upserted"] > 0
    tables = Tables.of(spark, config)
    assert tables["process_state_snapshot"].read().count() > 0
    status = read_status(config)
    assert status.reconciles
    assert status.counts["timers"] == len([row for row in machine.sent if row[4]["text"] == "gap"]) > 0
    quality = run_quality(spark, config)
    assert not quality.failed, quality.notes
    assert "output_key" in live_view(config, "spark")
    assert sessionlake.read(spark, config).count() == len(sessionlake.read(config).fetchall()) == len(machine.sent)
    shown = CliRunner().invoke(main, ["outputs", str(file), "--key", "b", "--json"])
    lines = json.loads(shown.stdout)
    assert [row["number"] for row in lines] == [row[4]["number"] for row in machine.sent if row[0] == "b"]
    run(spark, config, once=True, drain=True)
    assert live(config) == wanted(machine)

    for job, options in (
        (backfill, {"from_us": 0, "to_us": 1}),
        (redeem, {"reasons": ["null key"]}),
        (reprocess_late, {}),
    ):
        with pytest.raises(NotNeededError, match=r"^(backfill|redeem|reprocess-late): a \[process\] "):
            job(spark, config, **options)
    rebuild(spark, file, str(tmp_path / "new"))
    file.write_text(tomli_w.dumps({**raw_of("Sessions", warehouse="new")}))
    assert live(load_config(file)) == wanted(machine)


def test_no_class_that_cannot_be_loaded_is_run(spark: SparkSession, tmp_path: Path) -> None:
    config = config_of(tmp_path, "Nothing")
    write_rows(tmp_path, "0.json", rows_of(0))
    with pytest.raises(ConfigError, match=r"process\.class: '.*:Nothing' can't be loaded"):
        run(spark, config, once=True)


@pytest.mark.slow
def test_publish_sends_each_output_once_under_its_place(spark: SparkSession, tmp_path: Path) -> None:
    config, machine = config_of(tmp_path, "Sessions"), Machine(processors.Sessions, TYPES, 30, 0)
    for number in range(len(FILES)):
        write_rows(tmp_path, f"{number}.json", rows_of(number))
        machine.batch(rows_of(number))
    run(spark, config, once=True)
    changelog = Tables.of(spark, config)[OUTPUTS.changelog.changes].read()
    sent = to_records(latest_changes(changelog, OUTPUTS.changelog), OUTPUTS.changelog).collect()
    found = [(tuple(json.loads(row["key"]).values()), json.loads(row["value"])) for row in sent]
    named = ("output_key", "position", "ordinal", "output_time", "output_id", "revision", *OUTPUT, "emitted_at")
    assert {tuple(value) for _, value in found} == {named}
    assert all(place == (value["output_key"], value["position"], value["ordinal"]) for place, value in found)
    columns = ("output_key", "position", "ordinal", "text", "number", "other", "flag")
    assert sorted(tuple(value[name] for name in columns) for _, value in found) == wanted(machine)
