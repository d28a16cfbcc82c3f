"""A batch of little input is one task; its tables equal those of batches of two stages."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionlake.config.load import parse_config
from sessionlake.engine import coordinator
from sessionlake.engine.placement import in_one_task
from sessionlake.sources import files as file_source
from sessionlake.sources import kafka as kafka_source
from sessionlake.sources.files import FileSource
from sessionlake.sources.kafka import KafkaSource
from sessionlake.stream.inputs import ControlInput, PlannedInputs, event_positions
from tests.engine.crash_support import Lake, assert_same, run_once

SECTIONS: dict[str, Any] = {
    "pipeline": {"name": "p", "warehouse": "warehouse"},
    "event": {"key": "user", "time": "at"},
    "session": {"gap": "1 minute", "grace": "1 minute", "retention": "1 day"},
}


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the batches that are one task."""
    batches: list[int] = []

    def counted(*given: Any) -> DataFrame:
        batches.append(len(batches))
        return in_one_task(*given)

    monkeypatch.setattr(coordinator, "in_one_task", counted)
    return batches


@pytest.mark.slow
def test_all_batches_of_few_rows_but_a_runs_first_are_one_task(
    spark: SparkSession, tmp_path: Path, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, expected = (Lake(tmp_path / name, tmp_path / "events") for name in ("ours", "expected"))
    ours.write_files(range(4))
    with monkeypatch.context() as patch:
        patch.setattr(file_source, "SMALL_BYTES", 0)
        run_once(spark, expected)
    assert together == []
    run_once(spark, ours)
    assert len(together) == 3
    assert_same(ours, expected)


@pytest.mark.slow
def test_a_store_that_is_lost_meanwhile_is_restored_for_the_reason_that_the_one_task_found(
    spark: SparkSession, tmp_path: Path, together: list[int]
) -> None:
    ours, expected = (Lake(tmp_path / name, tmp_path / "events") for name in ("ours", "expected"))
    ours.write_files(range(3))
    run_once(spark, expected)
    together.clear()

    def damage(commit: Any) -> None:
        if commit.batch_id == 0:
            shutil.rmtree(ours.stores)
        if commit.batch_id == 1:
            for table in (ours.stores / "1").glob("*.run"):
                table.write_bytes(b"")

    run_once(spark, ours, damage)
    assert len(together) == 2
    causes = [commit["places"]["causes"] for commit in ours.commits()]
    assert causes[1] == {"missing": 3}
    assert causes[2] == {"corrupt": 1}
    assert_same(ours, expected)


def test_a_batch_with_corrections_has_its_stages(
    spark: SparkSession, tmp_path: Path, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path / "lake", tmp_path / "events")
    lake.write_files(range(3))
    monkeypatch.setattr(ControlInput, "_reads", lambda *_: True)
    run_once(spark, lake)
    assert len(lake.commits()) == 3
    assert together == []


class Few:
    """A source whose batches are all small; the second of its kind is read by versions."""

    def __init__(self, *, by_version: bool = False) -> None:
        self.by_version = by_version

    def planned(self, *_: Any) -> None:
        """Return None."""

    def versioned(self) -> object | None:
        return self if self.by_version else None

    def is_small(self, before: str, planned: str) -> bool:
        return (before, planned) != ("1", "9")


@pytest.mark.parametrize(
    ("batches", "by_version", "expected"),
    [
        ([(0, "1"), (1, "2"), (2, "3")], False, [False, True, True]),
        ([(0, "1"), (2, "2")], False, [False, False]),  # the position before is not known
        ([(0, "1"), (1, "9")], False, [False, False]),
        ([(0, "-"), (1, "2"), (2, "2")], False, [False, False, True]),
        ([(0, "1"), (1, "2")], True, [False, False]),
    ],
)
def test_what_is_known_of_a_batch(
    tmp_path: Path, batches: list[tuple[int, str]], expected: list[bool], *, by_version: bool
) -> None:
    config = parse_config(SECTIONS | {"source": {"kind": "files", "path": "events", "format": "json"}}, tmp_path)
    sources: Any = {"events": Few(by_version=by_version)}
    inputs, found = PlannedInputs(cast("Any", None), config, sources, {}), []
    for batch_id, position in batches:
        inputs.rows(cast("Any", None), batch_id, f"v1\n{{}}\n{position}\n-")
        found.append(inputs.is_small)
    assert found == expected


@pytest.mark.parametrize(
    ("before", "planned", "expected"),
    [
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 8, "1": 7}}, True),
        ({"t": {"0": 5}}, {"t": {"0": 6}}, True),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 6, "1": 10}}, False),
        ({"t": {"0": 5, "1": 7}}, {"t": {"0": 6, "1": 8}}, False),  # one task reads one partition after the other
        ({"t": {"0": 5}}, {"t": {"0": 5, "1": 1}}, False),  # of a partition that is new nobody knows the first offset
    ],
)
def test_few_offsets_of_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Any, planned: Any, *, expected: bool
) -> None:
    monkeypatch.setattr(kafka_source, "SMALL_RECORDS", 3)
    monkeypatch.setattr(kafka_source, "SMALL_PARTITIONS", 1)
    source = {"kind": "kafka", "topic": "t", "bootstrap_servers": "localhost:1", "format": "json"}
    config = parse_config(SECTIONS | {"source": source}, tmp_path)
    found = KafkaSource(cast("Any", None), config).is_small(json.dumps(before), json.dumps(planned))
    assert found is expected


def test_files_that_nobody_has_measured_are_not_small(tmp_path: Path) -> None:
    config = parse_config(SECTIONS | {"source": {"kind": "files", "path": "events", "format": "json"}}, tmp_path)
    assert not FileSource(cast("Any", None), config).is_small("{}", "{}")


def test_positions_of_inputs_in_a_log_of_offsets() -> None:
    text = 'v1\n{"batchTimestampMs":1}\n{"logOffset":3}\n-\n{"corrections":1}'
    assert event_positions(text, 2) == ['{"logOffset":3}', "-"]
    assert event_positions(None, 2) == ["-", "-"]
