"""`sessionlake plan` over warehouses that real streams have written (tests/fixtures); no JVM."""

import json
import shlex
import time
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tomli_w
from deltalake import CommitProperties, Transaction, write_deltalake

from sessionlake.config.times import parse_time
from sessionlake.reading import read
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import FOLD
from sessionlake.warehouse.views import ARCHIVED_FROM
from tests.cli.plan_support import archive_on, changes_of, config_table, lake, plan, written
from tests.operators_table import LAKES


@pytest.mark.parametrize("operator", LAKES)
def test_nothing_differs_from_what_it_was_made_with(tmp_path: Path, operator: str) -> None:
    result = plan(written(lake(tmp_path, operator), tmp_path))
    assert result.exit_code == 0, result.output
    assert "  nothing differs\nrun: takes it\n" in result.output


def test_each_change_has_its_class(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    changed = {
        "session": {"grace": "3 us", "gap": "7 us"},
        "pipeline": {"shards": 3},
        "aggregates": {"more": "count(v)"},
    }
    file = written(config, tmp_path, **changed)
    result = plan(file, "--json")
    assert result.exit_code == 2
    (found,) = json.loads(result.stdout)
    classes = {change["setting"]: change["change"] for change in found["changes"]}
    assert (classes["session.grace"], classes["session.gap"]) == ("live", "rebuild")
    assert found["runs"] is False
    text = plan(file).output
    assert "run: refused for session.gap" in text
    assert "session.gap" in plan(file, "--format", "csv").output


def test_a_restore_is_told(tmp_path: Path) -> None:
    file = written(lake(tmp_path, "window"), tmp_path, pipeline={"shards": 7})
    begun = time.perf_counter()
    result = plan(file)
    assert time.perf_counter() - begun < 2
    assert result.exit_code == 0
    assert (
        "-> 7: the stores are restored from the tables\nstores: restored from about 4.3 kB\nrun: takes it"
        in result.output
    )


@pytest.mark.parametrize("operator", LAKES)
def test_another_engine_of_stores_restores_them(tmp_path: Path, operator: str) -> None:
    result = plan(written(lake(tmp_path, operator), tmp_path, pipeline={"store_engine": "rocksdb"}))
    assert result.exit_code == 0, result.output
    told = "restore  pipeline.store_engine  files -> rocksdb: the stores are restored from the tables\nstores: restored from"
    assert told in result.output


def test_before_the_first_batch(tmp_path: Path) -> None:
    (tmp_path / "warehouse").mkdir()
    file = tmp_path / "new.toml"
    unpacked = lake(tmp_path / "old", "session")
    file.write_text(written(unpacked, tmp_path, pipeline={"warehouse": str(tmp_path / "warehouse")}).read_text())
    assert plan(file).output.splitlines()[-1] == "run: begins with this config"


@pytest.mark.parametrize("operator", ["session", "window", "count", "group"])
def test_an_added_aggregate_is_null_in_as_many_results_as_there_are(tmp_path: Path, operator: str) -> None:
    config = lake(tmp_path, operator)
    ((rows,),) = read(config).count("*").fetchall()
    result = plan(written(config, tmp_path, aggregates={"more": "count(v)"}))
    assert f"+ count(v): null in the {rows:,} {config.operator}s that are there" in result.output
    assert result.output.endswith("B\nrun: takes it\n")


def test_rows_that_are_not_folded_may_be_earlier_ones_of_others(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    log = config_table(config, "sessions") / "_delta_log"
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    fold = log / f"{1:020d}.json"
    fold.write_text("\n".join(line for line in fold.read_text().splitlines() if FOLD not in line))
    (change,) = changes_of(written(config, tmp_path, aggregates={"more": "count(v)"}))
    assert (change["results"], change["results_are_exact"]) == (26 + 30, False)
    assert change["told"].startswith("+ count(v): null in at most 56 sessions that are there")


def test_ten_million_sessions_are_counted_without_a_data_file_within_two_seconds_of_cpu(tmp_path: Path) -> None:
    config = lake(tmp_path, "session")
    table = config_table(config, "sessions")
    add_files(table, rows=5000, files=2000)
    for file in table.rglob("*.parquet"):
        file.unlink()
    file = written(config, tmp_path, aggregates={"more": "count(v)"})
    begun = time.process_time()
    result = plan(file)
    assert time.process_time() - begun < 2
    assert "null in the 10,000,026 sessions that are there" in result.output


def test_the_command_that_fills_is_ready_to_copy(tmp_path: Path) -> None:
    root = tmp_path / "with a space"
    file = written(lake(root, "session"), root, aggregates={"more": "count(v)"})
    (change,) = changes_of(file)
    assert shlex.split(change["backfill"]) == [
        *("sessionlake", "backfill", str(file), "--from", "2023-11-14", "--to", "2023-11-15"),
    ]
    assert f"events are read again: {change['backfill']}\n" in plan(file).output


@pytest.mark.parametrize(
    ("archive", "table", "aggregate", "since", "told"),
    [
        (True, schemas.EVENTS, "count(v)", 1, "the archive has v since batch 1: sessionlake backfill"),
        (True, schemas.EVENTS, "max_by(tag, v)", 1, "the archive has tag and v since batch 1: sessionlake backfill"),
        (True, schemas.EVENTS, "max(w)", None, "the archive lacks w, so that it stays null in them\n"),
        ("all", schemas.SOURCE_ROWS, "max(w)", 1, "the archive has w since batch 1: sessionlake backfill"),
        (True, None, "count(v)", None, "the archive lacks v, so that it stays null in them\n"),
    ],
)
def test_which_columns_the_archive_has(
    tmp_path: Path, archive: object, table: str | None, aggregate: str, since: int | None, told: str
) -> None:
    config = lake(tmp_path, "session")
    (tmp_path / "events").mkdir(exist_ok=True)
    (tmp_path / "events" / "new.json").write_text('{"key": "a", "time": 1, "id": "x", "v": 1, "w": 2, "tag": "t"}\n')
    archive_on(config, archive)
    if table is not None:
        write_deltalake(str(config_table(config, table)), pa.table({"batch_id": [2, 1]}))
    file = written(config, tmp_path, aggregates={"more": aggregate})
    (change,) = [one for one in changes_of(file) if one["setting"] == "aggregates.more"]
    assert change["archived_since"] == since
    assert (change["backfill"] is None) == (since is None)
    assert told in plan(file).output


@pytest.mark.parametrize(
    ("begins", "first"), [("2023-11-13", "2023-11-14"), ("2023-11-13T00:00:01Z", None), ("2023-11-14", None)]
)
def test_a_trimmed_archive_fills_from_a_retention_after_its_begin(
    tmp_path: Path, begins: str, first: str | None
) -> None:
    config = lake(tmp_path, "session")
    archive_on(config, True)
    trimmed = CommitProperties(app_transactions=[Transaction(ARCHIVED_FROM, parse_time(begins))])
    write_deltalake(str(config_table(config, schemas.EVENTS)), pa.table({"batch_id": [0]}), commit_properties=trimmed)

    file = written(config, tmp_path, aggregates={"more": "count(v)"}, session={"retention": "1 day"})
    (change,) = [one for one in changes_of(file) if one["change"] == "from here on"]
    assert change["archived_since"] == 0
    assert change["backfill"] == (first and f"sessionlake backfill {file} --from {first} --to 2023-11-15")
    told = "the archive has v since batch 0, but begins after them, so that it stays null in them\n"
    assert (told in plan(file).output) == (first is None)


def test_write_adds_the_section_that_keeps_the_gap_and_no_other_byte(tmp_path: Path) -> None:
    file = written(lake(tmp_path, "session"), tmp_path, session={"gap": "7 us"})
    before = b"\xef\xbb\xbf# mine\r\n" + file.read_bytes().replace(b"\n", b"\r\n").rstrip()
    file.write_bytes(before)
    assert plan(file).exit_code == 2
    assert file.read_bytes() == before
    result = plan(file, "--write")
    assert result.exit_code == 0, result.output
    # The watermark is 2023-11-14 23:13:01: midnight is less than an hour after it.
    section = ("[[session.before]]", "until = 2023-11-16T00:00:00Z", 'gap = "10 minutes"')
    assert file.read_bytes() == before + "".join(f"{line}\r\n" for line in ("", "", *section)).encode()
    assert result.output.startswith(f"{file}: wrote\n" + "".join(f"  {line}\n" for line in section))
    assert "  from a time on  session.gap " in result.output
    written_once = file.read_bytes()
    assert plan(file, "--write").output.startswith(f"{file}: nothing to write\n")
    assert file.read_bytes() == written_once
    assert json.loads(plan(file, "--write", "--json").stdout)[0]["written"] is None


@pytest.mark.parametrize(
    "changed",
    [
        {"session": {"grace": "3 us"}},
        {"event": {"key": "other"}},
        # What is written holds for times before the watermark, and is refused: another section can't mend it.
        {"session": {"gap": "7 us", "before": [{"until": "1970-01-02", "gap": "5 us"}]}},
    ],
)
def test_nothing_is_written_that_does_not_help(tmp_path: Path, changed: dict[str, Any]) -> None:
    file = written(lake(tmp_path, "session"), tmp_path, **changed)
    before = file.read_bytes()
    assert plan(file, "--write").output.startswith(f"{file}: nothing to write\n")
    assert file.read_bytes() == before


def test_a_file_that_can_take_no_section_is_told(tmp_path: Path) -> None:
    file = written(lake(tmp_path, "session"), tmp_path, session={"gap": "7 us"})
    raw = tomllib.loads(file.read_text())
    session = ", ".join(f"{name} = {json.dumps(value)}" for name, value in raw.pop("session").items())
    file.write_text(f"session = {{ {session} }}\n{tomli_w.dumps(raw)}")
    before = file.read_bytes()
    result = plan(file, "--write")
    assert result.exit_code == 2
    assert "can't take a section at its end" in result.stderr
    assert '[[session.before]]; until = 2023-11-16T00:00:00Z; gap = "10 minutes"' in result.stderr
    assert file.read_bytes() == before


def add_files(table: Path, *, rows: int, files: int) -> None:
    """Add files to a table's log that are not there, each like one that is."""
    logs = sorted((table / "_delta_log").glob("*.json"))
    (add,) = [json.loads(line)["add"] for log in logs for line in log.read_text().splitlines() if '"add"' in line][-1:]
    stats = json.dumps({**json.loads(add["stats"]), "numRecords": rows})
    lines = [json.dumps({"add": {**add, "path": f"{n}-{add['path']}", "stats": stats}}) for n in range(files)]
    (table / "_delta_log" / f"{int(logs[-1].stem) + 1:020d}.json").write_text("\n".join(lines))
