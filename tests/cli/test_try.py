"""`sessionlake try`: results that DuckDB also computes, counts that add up, one line for a bad place, and nothing written."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake

from sessionlake.cli import main
from sessionlake.preflight import trial

START = datetime(2026, 1, 31, tzinfo=UTC)


def rows_of(number: int, users: int = 12, seed: int = 7) -> list[dict[str, Any]]:
    """Return events of three days, in no order."""
    draw = random.Random(seed)
    return [
        {
            "event_id": f"e{at}",
            "user_id": f"u{draw.randrange(users)}",
            "happened_at": f"{START + timedelta(milliseconds=draw.randrange(3 * 86_400_000)):%Y-%m-%dT%H:%M:%S.%fZ}",
            "url": draw.choice("abc"),
            "price": draw.randrange(1000) / 8,
        }
        for at in range(number)
    ]


def write(path: Path, rows: list[dict[str, Any]], *more: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in [*map(json.dumps, rows), *more]))
    return path


def call(*words: str) -> Any:
    result = CliRunner().invoke(main, ["--quiet", "try", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def shown(output: str, key: str) -> list[list[str]]:
    """Return the rows of the printed table, as words."""
    lines = output.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith(key))
    return [re.split(r"  +", line) for line in lines[at + 1 : lines.index("", at)]]


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the rows into many batches."""
    monkeypatch.setattr(trial, "_BATCH_ROWS", 50)


SESSIONS = """
with marked as (
    select *, happened_at - lag(happened_at) over (partition by user_id order by happened_at) > {gap} as cut from rows
), numbered as (
    select *, sum(coalesce(cut, false)::int) over (partition by user_id order by happened_at) as number from marked
)
select user_id, min(happened_at), max(happened_at), count(*), sum(price) from numbered group by user_id, number order by 3 desc
"""


@pytest.mark.usefixtures("small_batches")
def test_sessions_of_all_files_are_those_of_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(1200)
    for number in range(3):
        write(tmp_path / "events" / f"{number}.json", rows[number::3], *(["{broken", "[1]"] if number else []))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir(tmp_path)
    result = call("events")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("key   user_id      12 different values in 1,200 events")
    assert lines[1].startswith("time  happened_at  2026-01-31 ")
    gap = re.search(r"^gap   (\d+ \w+)  +\w", result.stdout, re.MULTILINE)
    assert gap is not None
    assert "1,204 events = 1,200 accepted + 4 dead" in lines
    assert sum(int(found[1]) for found in re.finditer(r"^(\d+) dead: bad JSON|^(?!)", result.stdout, re.MULTILINE)) == 4
    events = pa.Table.from_pylist([{**row, "happened_at": datetime.fromisoformat(row["happened_at"])} for row in rows])
    with duckdb.connect() as database:
        database.register("rows", events)
        database.execute("set timezone = 'UTC'")
        oracle = database.execute(
            SESSIONS.format(gap=f"interval '{gap[1]}'").replace(
                "min(happened_at), max(happened_at)",
                "strftime(min(happened_at), '%Y-%m-%d %H:%M:%S.%g'), strftime(max(happened_at), '%Y-%m-%d %H:%M:%S.%g')",
            )
        ).fetchall()
    assert f"the latest 10 of {len(oracle):,} sessions" in lines or len(oracle) <= 10
    printed = shown(result.stdout, "session_key")
    heads = re.split(r"  +", next(line for line in lines if line.startswith("session_key")))
    price = heads.index("price_sum")
    assert [[*row[:4], float(row[price])] for row in printed] == [
        [key, _time(start), _time(end), str(count), total] for key, start, end, count, total in oracle[:10]
    ]
    # Nothing was written, and what the last line says writes the same.
    assert [*temporary.iterdir()] == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events", "temporary"]
    command = shlex.split(lines[-1].removeprefix("to write the config: "))
    assert command == ["sessionlake", "init", "events", "-o", "events.toml"]
    assert CliRunner().invoke(main, command[1:]).exit_code == 0
    assert f'gap = "{gap[1]}"' in (tmp_path / "events.toml").read_text()
    assert call("events").stdout.splitlines()[-1].endswith("-o events2.toml")


def _time(text: str) -> str:
    return text.removesuffix(".000")


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("form", ["json", "csv", "parquet", "delta", "json.gz"])
def test_windows_of_each_format_are_those_of_duckdb(tmp_path: Path, form: str) -> None:
    rows = rows_of(400)
    path = tmp_path / f"events.{form}"
    events = pa.Table.from_pylist(rows)
    if form == "parquet":
        pq.write_table(events, path)
    elif form == "csv":
        path.write_text(
            "".join(",".join(map(str, row)) + "\n" for row in [[*rows[0]], *(row.values() for row in rows)])
        )
    elif form == "delta":
        write_deltalake(str(path), events)
    elif form == "json.gz":
        import gzip

        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    else:
        write(path, rows)
    result = call(str(path), "--window", "tumbling", "--key", "url")
    assert (result.exit_code, result.stderr) == (0, "")
    size = re.search(r"^size  (\d+ \w+)  +\w", result.stdout, re.MULTILINE)
    assert size is not None
    assert "400 events = 400 accepted + 0 dead" in result.stdout
    with duckdb.connect() as database:
        database.register("rows", events)
        bucket = f"time_bucket(interval '{size[1]}', happened_at::timestamp)"
        oracle = database.execute(
            f"select url, strftime({bucket}, '%Y-%m-%d %H:%M:%S'), count(*), sum(price) from rows group by 1, {bucket} order by {bucket} desc, url desc"
        ).fetchall()
    printed = shown(result.stdout, "window_key")
    heads = re.split(r"  +", next(line for line in result.stdout.splitlines() if line.startswith("window_key")))
    at = [heads.index(name) for name in ("window_key", "window_start", "event_count", "price_sum")]
    assert [[row[a] for a in at[:3]] + [float(row[at[3]])] for row in printed] == [
        [key, start, str(count), total] for key, start, count, total in oracle[:10]
    ]
    assert f"of {len(oracle):,} windows" in result.stdout or len(oracle) <= 10


def test_a_query_by_its_text_or_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "events.json", rows_of(200))
    text = "select url, window(happened_at, '1 day'), count(*) n from events where price > 50 group by url, window(happened_at, '1 day')"
    (tmp_path / "query.sql").write_text(text)
    by_text, by_file = (call(str(path), "--sql", query) for query in (text, str(tmp_path / "query.sql")))
    assert (by_text.exit_code, by_text.stderr) == (0, "")
    accepted = sum(row["price"] > 50 for row in rows_of(200))
    assert f"200 events = {accepted} accepted + 0 dead + {200 - accepted} filtered" in by_text.stdout
    assert by_text.stdout.splitlines()[:-1] == by_file.stdout.splitlines()[:-1]
    command = shlex.split(by_text.stdout.splitlines()[-1].removeprefix("to write the config: "))
    assert command[:5] == ["sessionlake", "init", str(path), "--sql", text]
    refused = call(str(path), "--sql", text, "--key", "url")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (2, 1)


def test_the_reason_of_many_dead_rows_is_told_with_one_of_them(tmp_path: Path) -> None:
    rows = rows_of(100)
    rows += [{**row, "happened_at": "soon"} for row in rows_of(4, seed=8)]
    result = call(str(write(tmp_path / "events.json", rows)), "--time", "happened_at")
    assert result.exit_code == 0
    assert "104 events = 100 accepted + 4 dead" in result.stdout
    assert "4 dead: unparsable time: 'soon' (" in result.stdout


def test_events_of_any_age_are_none_late(tmp_path: Path) -> None:
    rows = [
        {"user": user, "at": at}
        for user in "ab"
        for at in ("2026-01-31T00:00:00Z", "1931-01-01T00:00:00Z", "2026-01-31T00:01:00Z")
    ]
    result = call(str(write(tmp_path / "events.json", rows)))
    assert "6 events = 6 accepted + 0 dead" in result.stdout
    assert len(shown(result.stdout, "session_key")) == 4


def test_an_event_of_the_future_is_dead_as_in_a_run(tmp_path: Path) -> None:
    rows = [*rows_of(50), {**rows_of(1)[0], "happened_at": "2999-01-01T00:00:00Z"}]
    result = call(str(write(tmp_path / "events.json", rows)))
    assert "51 events = 50 accepted + 1 dead" in result.stdout


PLACES = {
    "missing": None,
    "empty.json": b"",
    "blank.json": b"\n \n",
    "header.csv": b"a,b\n",
    "bytes.json": bytes(range(256)) * 40,
    "bytes.csv": bytes(range(256)) * 40,
    "bytes.parquet": bytes(range(256)) * 40,
    "bytes": bytes(range(256)) * 40,
    "bytes.json.gz": bytes(range(256)) * 40,
    "words.json": b"hello\nworld\n",
    "words.txt": b"hello\nworld\n",
    "directory": None,
    "hidden/.events.json": b'{"user": "a"}\n',
}


@pytest.mark.parametrize("place", [*PLACES, "s3://bucket/events", "kafka://127.0.0.1:9/clicks"])
def test_a_place_without_events_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    if PLACES.get(place) is not None:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(PLACES[place] or b"")
    elif place == "directory":
        (tmp_path / place).mkdir()
    result = call(place.partition("/.")[0])
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(("sessionlake: try: ", "sessionlake: --"))
    assert line.isprintable()


def test_a_column_that_is_not_clear_is_asked_for(tmp_path: Path) -> None:
    rows = [{"x": "a", "y": "b", "at": "2026-01-31T00:00:00Z"}] * 4 + [
        {"x": "b", "y": "c", "at": "2026-01-31T00:00:00Z"}
    ] * 4
    result = call(str(write(tmp_path / "events.json", rows)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "sessionlake: --key: which column is the key is not clear; pass --key with one of: x, y\n"


def test_one_file_of_a_directory_is_read_alone(tmp_path: Path) -> None:
    write(tmp_path / "others.json", rows_of(30, seed=1))
    result = call(str(write(tmp_path / "events.json", rows_of(20))))
    assert "20 events = 20 accepted + 0 dead" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_leaves_nothing(tmp_path: Path, number: int) -> None:
    path, temporary = write(tmp_path / "events.json", rows_of(60_000, users=900)), tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "sessionlake", "try", str(path)],
        env={**os.environ, "TMPDIR": str(temporary)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not [*temporary.iterdir()] and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, ""), err
    assert err.splitlines()[-1] == "sessionlake: try: stopped; it only reads, and nothing was changed"
    assert [*temporary.iterdir()] == []


def test_a_batch_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_BATCH_ROWS", 1000)
    path = write(tmp_path / "events.json", rows_of(5000))
    seen: list[int] = []
    real = trial.LocalStream.run
    monkeypatch.setattr(
        trial.LocalStream,
        "run",
        lambda self, operator, clock, given=(), **more: (
            seen.append(sum(rows.table.num_rows for _, rows in given)) or real(self, operator, clock, given, **more)
        ),
    )
    # A file is decoded in blocks, and a batch ends with the block that fills it.
    monkeypatch.setattr("sessionlake.sources.decoding.files.BLOCK_BYTES", 1 << 16)
    assert "5,000 events = 5,000 accepted + 0 dead" in call(str(path)).stdout
    assert sum(seen) == 5000
    assert len(seen) > 3
