"""A directory of files: what is below a link is not read, and is said once; names that Java can't say are warned of."""

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from pyspark.sql import SparkSession

import sessionlake
from sessionlake import read_sessions
from sessionlake.errors import SourceError
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.files import FileSource, names_of_no_utf8, path_for_spark, source_files
from sessionlake.sources.planned_files import PlannedFiles
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.filesystem import as_name
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


@pytest.mark.parametrize("pattern", ["dat*", "ev[e]nts", "{events}", "event?", "even\\ts"])
def test_a_pattern_is_no_directory(tmp_path: Path, pattern: str) -> None:
    config = make_config(tmp_path, source={"path": str(tmp_path / pattern)})
    with pytest.raises(SourceError, match="is no directory; create it or correct the path"):
        FileSource(None, config).check()  # type: ignore[arg-type]
    (tmp_path / pattern).mkdir()
    FileSource(None, config).check()  # type: ignore[arg-type]


def test_a_directory_is_read_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """Beside each name that a reader of files takes as a pattern lies a directory that it would read instead."""
    beside = ["a1", "ab", "axb", "a", "b", "a b"]
    names = [
        "a[1]",
        "a[",
        "a]",
        "{a,b}",
        "a{",
        "a}",
        "a*",
        "a?b",
        "a\\b",
        "a[\\1]{b,c}*?, #%20",
        "a,b",
        "#a",
        "a%20b",
        "a%",
        "^a",
        "a:b",
    ]
    for name in (*beside, *names):
        folder = tmp_path / name / "below"
        folder.mkdir(parents=True)
        (folder / "0.txt").write_text(name)
    configs = [make_config(tmp_path, source={"path": str(tmp_path / name)}) for name in names]
    paths = [path_for_spark(spark, config) for config in configs]
    assert sorted(row[0] for row in spark.read.option("recursiveFileLookup", "true").text(paths).collect()) == sorted(
        names
    )
    assert [Path(*source_files(config)).read_text() for config in configs] == names


def test_a_path_in_an_object_store_may_be_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's own file system stands for the store: a name that is there wins."""
    place = str(tmp_path / "in[1]")
    config = make_config(tmp_path, source={"path": place})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("sessionlake.sources.files.is_local", lambda _: False)
        assert path_for_spark(spark, config) == place
        (tmp_path / "in[1]").mkdir()
        assert path_for_spark(spark, config) == as_name(place)


FILES = ("text", "json", "csv", "parquet", "orc", "load")
BY_NAME = ("as_name", "path_for_spark")


def unnamed(text: str) -> Iterator[str]:
    """Yield the calls that give Spark's readers of files a path as it is."""
    nodes = list(ast.walk(ast.parse(text)))

    def made(*words: str) -> set[str]:
        """Return the variables that are made with one of these words."""
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        of = [node for node in assigned if any(word in ast.unparse(node.value) for word in words)]
        return {target.id for node in of for target in node.targets if isinstance(target, ast.Name)}

    names, readers = made(*BY_NAME), made("spark.read")
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in FILES
            and node.args
        ):
            of, given = ast.unparse(node.func.value), ast.unparse(node.args[0])
            by_name = any(word in given for word in BY_NAME) or given.lstrip("*") in names
            reads = "read" in of.lower() or of.partition(".")[0] in readers
            if reads and "'delta'" not in of and not by_name:
                yield f"{of}.{node.func.attr}({given})"


def test_readers_of_files_are_given_names() -> None:
    root = Path(sessionlake.__file__).parent
    found = {path.relative_to(root).as_posix(): list(unnamed(path.read_text())) for path in root.rglob("*.py")}
    of_delta = {"sources/change_feed.py", "sources/delta.py", "sources/results.py", "warehouse/tables.py"}
    # `_binary` is given names.
    assert {name for name, calls in found.items() if calls} == {"sources/lookups/readers.py", *of_delta}
    assert list(unnamed("spark.read.text(path)\nplace = as_name(path)\nreader.parquet(place)")) == [
        "spark.read.text(path)"
    ]


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
