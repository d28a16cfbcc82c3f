"""A directory of files: what is below a link is not read, and is said once; names that Java can't say are warned of."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.operators.run import run
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.files import FileSource, names_of_no_utf8
from sessionlake.sources.planned_files import PlannedFiles
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.support import make_config


def planned(root: Path) -> PlannedFiles:
    """Return what a checkpoint in `root` says, read as files."""

    def read_text(uri: str) -> str | None:
        return Path(uri).read_text() if Path(uri).exists() else None

    spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    tables: Any = SimpleNamespace(spark=spark, read_text=read_text, names=os.listdir)
    return PlannedFiles(tables, make_config(root))


def plan(root: Path, batch_id: int, names: list[str], *, compact: bool = False) -> None:
    """Plan a batch of an entry of the log, as Spark would; a compacted entry has all before it too."""
    checkpoint = Path(make_config(root).checkpoint)
    log = checkpoint / "sources" / "0"
    for folder in (log, checkpoint / "offsets"):
        folder.mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"logOffset":{batch_id}}}\n-')
    before = "".join((log / str(n)).read_text().partition("\n")[2] + "\n" for n in range(batch_id)) if compact else ""
    paths = [f"file://{quote(str(root / 'events' / name))}" for name in names]
    lines = [json.dumps({"path": p, "timestamp": 1, "batchId": batch_id}, separators=(",", ":")) for p in paths]
    (log / f"{batch_id}{'.compact' if compact else ''}").write_text("v1\n" + before + "\n".join(lines))


def test_a_link_is_once_in_each_batch_that_has_a_file_below_it(tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    for name in ("a b.json", "c.json"):
        (events / name).write_text("")
    (events / "loop").symlink_to(events)
    (events / "loop of files.json").symlink_to(events / "c.json")
    plan(tmp_path, 0, ["a b.json", "was a directory/1.json"])
    # Planned again through the link that took the directory's place.
    (events / "was a directory").symlink_to(events)
    plan(tmp_path, 1, ["loop/c.json", "c.json", "loop/loop/c.json"])
    plan(tmp_path, 2, ["loop/a b.json", "loop of files.json"], compact=True)
    plan(tmp_path, 3, ["loop/loop/a b.json", "was a directory/a b.json", "was a directory/c.json"])
    found = [["a b.json", "was a directory"], ["loop", "c.json"], ["loop", "loop of files.json"]]
    found.append(["loop", "was a directory"])
    goes_on, expected = planned(tmp_path), [[str(events / name) for name in names] for names in found]
    assert [goes_on.of(batch) for batch in range(4)] == expected
    # A start goes on at any batch, and computes it as before.
    assert [planned(tmp_path).of(batch) for batch in range(4)] == expected
    assert planned(tmp_path).gone(1) == []


def test_names_of_no_utf8_are_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, events = make_config(tmp_path), tmp_path / "events"
    source = FileSource(None, config)  # type: ignore[arg-type]
    source.check()
    assert caplog.text == ""
    below = os.fsencode(events) + b"/d\xe4y\n1"
    os.makedirs(below)  # noqa: PTH103 (bytes)
    for name in (below + b"/\xff.json", os.fsencode(events) + b"/.\xff", os.fsencode(events) + b"/bad\xff\xfe.json"):
        with open(name, "wb"):  # noqa: PTH123 (bytes)
            pass
    (events / "gut ä.json").write_text("")
    hidden = os.fsencode(events) + b"/_hidden"
    os.mkdir(hidden)  # noqa: PTH102 (bytes)
    with open(hidden + b"/\xff.json", "wb"):  # noqa: PTH123 (bytes)
        pass
    assert names_of_no_utf8(events) == [f"{events}/bad\\xff\\xfe.json", f"{events}/d\\xe4y\\n1"]
    source.watch()
    assert caplog.text == "", "the next look is in a minute"
    FileSource.check(source := FileSource(None, config))  # type: ignore[arg-type]
    source._next_look = 0.0
    source.watch()
    (warned,) = caplog.messages
    assert warned.startswith("sessionlake: warning: source.path: '")
    assert "bad\\xff\\xfe.json', '" in warned
    assert warned.endswith("d\\xe4y\\n1': not read, because a name must be UTF-8; rename it")


@pytest.mark.parametrize("pattern", ["dat*", "ev[e]nts", "{events}", "event?/in"])
def test_names_below_a_pattern_are_not_looked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pattern: str
) -> None:
    beside = os.fsencode(tmp_path) + b"/another's"
    os.mkdir(beside)  # noqa: PTH102 (bytes)
    with open(beside + b"/\xff.json", "wb"):  # noqa: PTH123 (bytes)
        pass
    FileSource(None, make_config(tmp_path, source={"path": str(tmp_path / pattern)})).check()  # type: ignore[arg-type]
    assert caplog.text == ""


@pytest.mark.slow
def test_files_below_links_are_read_once_and_each_link_is_one_dead_letter_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    config, events = make_config(tmp_path, source={"max_files_per_batch": 3}), tmp_path / "events"
    for day in ("d1", "d2"):
        (events / day).mkdir(parents=True)
        (events / day / "0.json").write_text(json.dumps({"key": day, "time_us": 1000, "v": 1}))
    (events / "latest").symlink_to(events / "d2")
    (events / "loop").symlink_to(events)
    assert run(spark, config, once=True).counts["accepted"] == 2
    (events / "d2" / "1.json").write_text(json.dumps({"key": "d2", "time_us": 1001, "v": 1}))
    run(spark, config, once=True)
    counted = read_sessions(spark, config).select("session_key", "event_count").collect()
    assert sorted(map(tuple, counted)) == [("d1", 1), ("d2", 2)]
    dead = (
        Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.DEAD_LETTERS]
        .read()
        .select("source", "reason")
        .collect()
    )
    reason = "a link in the source's directory, which is not followed"
    assert {tuple(row) for row in dead} == {(str(events / name), reason) for name in ("latest", "loop")}
