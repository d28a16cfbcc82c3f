from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from sessionlake.stream.ingest import CORRECTION, EVENTS, INPUT
from sessionlake.stream.inputs import RECORDS, ControlInput, control_position


def offsets(control: str) -> str:
    return f'v1\n{{"batchTimestampMs":1}}\n{{"events":1}}\n{control}'


class Rows:
    """Stands for a frame: which columns were dropped, and its session's settings."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.conf, self.dropped = conf, False
        set_ = lambda name, value: conf.__setitem__(name, str(value))  # noqa: E731
        self.sparkSession = SimpleNamespace(conf=SimpleNamespace(get=conf.__getitem__, set=set_))

    def drop(self, *names: str) -> "Rows":
        assert names == (CORRECTION, INPUT)
        self.dropped = True
        return self


def made(kind: str, files: dict[int, str], version: int = 5) -> Any:
    tables = MagicMock()
    tables.read_text = lambda path: files.get(int(path.rpartition("/")[2]))
    tables.__getitem__.return_value.latest_version.return_value = version
    sources = {EVENTS: SimpleNamespace(one_row_a_file=kind == "files")}
    return ControlInput(tables, SimpleNamespace(checkpoint="c"), sources)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "position"),
    [(None, "-"), ("v1\n{}\n{}", "-"), (offsets("-"), "-"), (offsets("{7}"), "{7}"), (offsets("{7}\n{8}"), "{8}")],
)
def test_position_in_the_control_input(text: str | None, position: str) -> None:
    assert control_position(text) == position


def test_column_of_corrections_is_there_in_the_batches_that_read_some() -> None:
    files = {batch: offsets(at) for batch, at in enumerate(["-", "-", "{1}", "{1}", "{2}"])}
    control, conf = made("kafka", files), {RECORDS: "100000"}
    found = []
    for batch, text in files.items():
        rows = Rows(conf)
        control.rows(rows, batch, text)
        found.append((rows.dropped, conf[RECORDS]))
        assert control.has_rows is not rows.dropped
    usual, few = (True, "100000"), (False, "2000")
    assert found == [usual, usual, few, usual, few]


def test_after_a_restart_the_batch_before_is_read_from_the_checkpoint() -> None:
    files = {6: offsets("{1}"), 7: offsets("{1}"), 8: offsets("{2}")}
    for batch, dropped in ((7, True), (8, False)):
        rows = Rows({RECORDS: "100000"})
        made("delta", files).rows(rows, batch, files[batch])
        assert rows.dropped == dropped


@pytest.mark.parametrize(("version", "dropped"), [(0, True), (1, False)])
def test_first_batch_reads_no_corrections_of_a_table_that_was_only_made(version: int, dropped: bool) -> None:  # noqa: FBT001
    rows = Rows({RECORDS: "100000"})
    made("kafka", {}, version).rows(rows, 0, offsets("{1}"))
    assert rows.dropped == dropped


def test_what_is_not_known_is_read() -> None:
    first, later = Rows({RECORDS: "100000"}), Rows({RECORDS: "100000"})
    made("files", {}).rows(first, 3, None)
    made("files", {}).rows(later, 3, offsets("{1}"))
    assert not first.dropped
    assert not later.dropped
