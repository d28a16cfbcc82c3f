"""`sessionlake init` on the formats of public logs and exports: it finds the layout by the first bytes, and `check` takes the config."""

import gzip
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.config.source import SourceSection
from sessionlake.preflight.sources import local_files
from sessionlake.sources.columns import EventColumns, time_form
from sessionlake.sources.contract import check
from sessionlake.sources.decoding.files import decode

Events = list[tuple[str, datetime]]


def made() -> Events:
    """73 events of 6 users."""
    rng, start = random.Random(4), datetime(2026, 11, 28, 5, tzinfo=UTC)
    events = [
        (f"10.0.0.{user}", start + timedelta(hours=6 * visit, minutes=7 * number + rng.randrange(5)))
        for user in range(6)
        for visit in range(3)
        for number in range(4)
    ]
    return sorted([*events, ("10.0.0.1", start + timedelta(days=2))], key=lambda event: event[1])


EVENTS = made()
CONTENTS: dict[str, tuple[Callable[[str, datetime, int], str], str, str]] = {}
"""By file its lines, of user, time and number, and the text before and behind all of them."""


def line(name: str, before: str = "", after: str = "") -> Callable[[Callable[[str, datetime, int], str]], None]:
    def add(write: Callable[[str, datetime, int], str]) -> None:
        CONTENTS[name] = write, before, after

    return add


@line("nginx/access.log")
def nginx(user: str, at: datetime, number: int) -> str:
    return f'{user} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET /p?x=1 HTTP/1.1" 200 {number} "-" "Mozilla/5.0 (X11)"\n'


@line("apache/access.log")
def apache(user: str, at: datetime, number: int) -> str:
    return f'{user} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET /p?x=1 HTTP/1.1" 200 {number or "-"}\n'


@line("cloudfront/E1.2026-11-28-05.abc.gz", "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes\n")
def cloudfront(user: str, at: datetime, number: int) -> str:
    fields = f"{at:%Y-%m-%d\t%H:%M:%S}\tLAX1\t{number}\t{user}\tGET\td1.cloudfront.net\t/i\t200\t-\tM\t-\t-\tHit\tid\th\thttps\t23\t0.001"
    return f"{fields}\t-\tTLSv1.2\tECDHE\tHit\tHTTP/2.0\t-\t-\t1\t0.001\tHit\ttext/html\t78\t-\t-\n"


@line("alb/log")
def alb(user: str, at: datetime, number: int) -> str:
    request = '"GET http://a/ HTTP/1.1" "curl" - - arn "Root=1" "-" "-" 0'
    return f"http {at:%Y-%m-%dT%H:%M:%S.000000Z} app/lb {user}:{number + 1} - -1 -1 -1 502 - 34 366 {request}\n"


@line("snowplow/part-0000")
def snowplow(user: str, at: datetime, number: int) -> str:
    fields = ["shop", "web", f"{at:%Y-%m-%d %H:%M:%S.000}", *[""] * 128]
    fields[12], fields[52] = user, f'{{"schema":"iglu:com.x","data":[{{"n":"{number}"}}]}}'
    return "\t".join(fields) + "\n"


@line("cloudtrail/a.json.gz", '{"Records":[{}', "]}")
def cloudtrail(user: str, at: datetime, number: int) -> str:
    record = {"eventVersion": "1.08", "eventTime": f"{at:%Y-%m-%dT%H:%M:%SZ}", "eventID": f"e{number}", "user": user}
    return f",{json.dumps(record)}"


@line("pretty/export.json", '{\n "next": null,\n "data": {"items": [{}', "\n]}}")
def pretty(user: str, at: datetime, number: int) -> str:
    return ",\n" + json.dumps({"user": user, "at": at.isoformat(), "v": number}, indent=2)


@line("list/export", "[{}", "]")
def epochs_in_texts(user: str, at: datetime, number: int) -> str:
    return f',{{"user": "{user}", "at": "{int(at.timestamp()) * 1_000_000}", "n": {number}}}\n'


@line("semicolons/a.csv", "Kunde;Zeit;Betrag\n")
def semicolons(user: str, at: datetime, number: int) -> str:
    return f"{user};{at.isoformat()};{number},5\n"


@line("pipes/x.txt", "# made by us\n")
def pipes(user: str, at: datetime, number: int) -> str:
    return f"{user}|{at.isoformat()}|{number}\n"


@line("bigquery/a.csv", "user_id,event_time,v\n")
def bigquery(user: str, at: datetime, number: int) -> str:
    return f"{user},{at:%Y-%m-%d %H:%M:%S.000000} UTC,{number}\n"


def write(root: Path, name: str) -> Path:
    of, before, after = CONTENTS[name]
    text = before + "".join(of(user, at, number) for number, (user, at) in enumerate(EVENTS)) + after
    path = root / name
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [*map(str, arguments)])
    return result.exit_code, result.stdout + result.stderr


def read(config: Config, path: Path) -> Events:
    event, layout = config.event, config.source.layout
    assert event.key == config.event.key_columns[0]
    assert layout is not None
    types = local_files(config).types((event.key, str(event.time)))
    columns = EventColumns(event.key, event.time, time_form(event), None, (), types)
    found: Events = []
    for part in decode(str(path), str(path), layout, columns):
        checked = check(part.table, part.error, columns)
        micros = [datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(at)) for at in checked.time_us]
        good = [True] * len(micros) if checked.reason is None else checked.reason.is_null().to_pylist()
        found += [
            pair for pair, kept in zip(zip(checked.key.to_pylist(), micros, strict=True), good, strict=True) if kept
        ]
    return found


@pytest.mark.parametrize(
    ("name", "arguments", "keys"),
    [
        ("nginx/access.log", (), {"format": "text", "preset": "nginx"}),
        ("apache/access.log", (), {"format": "text", "preset": "apache"}),
        ("cloudfront/E1.2026-11-28-05.abc.gz", (), {"format": "text", "preset": "cloudfront"}),
        ("alb/log", (), {"format": "text", "preset": "alb"}),
        (
            "snowplow/part-0000",
            ("--key", "c13"),
            {
                "format": "csv",
                "delimiter": "\t",
                "quote": "",
                "header": False,
                "names": [f"c{n}" for n in range(1, 132)],
            },
        ),
        ("cloudtrail/a.json.gz", ("--key", "user"), {"format": "json", "records": "Records"}),
        ("pretty/export.json", (), {"format": "json", "records": "data.items"}),
        ("list/export", (), {"format": "json", "records": "."}),
        ("semicolons/a.csv", ("--key", "Kunde"), {"format": "csv", "delimiter": ";"}),
        (
            "pipes/x.txt",
            ("--key", "c1"),
            {"format": "csv", "delimiter": "|", "header": False, "names": ["c1", "c2", "c3"], "comment": "#"},
        ),
        ("bigquery/a.csv", (), {"format": "csv"}),
    ],
)
def test_the_layout_is_found_and_all_events_are_read(
    name: str, arguments: tuple[str, ...], keys: dict[str, object], tmp_path: Path
) -> None:
    path, file = write(tmp_path / "logs", name), tmp_path / "p.toml"
    code, said = run("init", path, "-o", file, *arguments)
    assert code == 0, said
    config = load_config(file)
    usual = {"kind", "path", "types", "max_files_per_batch"}
    assert {key: getattr(config.source, key) for key in written(config.source) if key not in usual} == keys
    assert run("check", file)[0] == 0
    assert sorted(read(config, path)) == sorted(EVENTS)


def written(source: SourceSection) -> list[str]:
    return [key for key, field in type(source).model_fields.items() if getattr(source, key) != field.default]


def test_epochs_in_texts_get_the_type_string_and_a_unit(tmp_path: Path) -> None:
    write(tmp_path, "list/export")
    run("init", tmp_path / "list", "-o", tmp_path / "p.toml")
    config = load_config(tmp_path / "p.toml")
    assert (config.event.time, config.event.time_unit, config.source.types["at"]) == ("at", "us", "string")


@pytest.mark.parametrize(
    ("content", "arguments"),
    [
        (b"Nov 28 05:45:00 host app[1]: user u3, done\nNov 28 05:46:00 host app[1]: stopped\n", ()),
        (b"Nov 28 05:45:00 host app[1]: user u3, done\n", ("--format", "text")),
        (bytes(range(256)) * 40, ()),
        (b"", ()),
    ],
)
def test_another_log_is_one_line_that_names_pattern_and_preset(
    content: bytes, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "messages").write_bytes(content)
    code, said = run("init", tmp_path / "in", "-o", tmp_path / "p.toml", *arguments)
    assert (code, (tmp_path / "p.toml").exists(), len(said.splitlines())) == (2, False, 1)
    assert "source.pattern" in said
    assert "source.preset" in said


def test_a_column_that_a_preset_has_not_is_one_line(tmp_path: Path) -> None:
    code, said = run("init", write(tmp_path, "nginx/access.log"), "--key", "user")
    assert code == 2
    assert said.splitlines()[-1].startswith(
        "sessionlake: --key: no column 'user' of the preset 'nginx'; pass one of remote_addr, remote_user, time_local, "
    )
    assert said.endswith("or write a config with source.pattern in place of source.preset\n")


def test_lines_of_json_with_a_list_are_no_document(tmp_path: Path) -> None:
    rows = [
        {"user_id": f"u{n % 3}", "at": f"2026-01-01T00:00:{n:02}Z", "items": [{"sku": "a"}] * 30} for n in range(40)
    ]
    for count in (40, 2):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows[:count]))
        code, said = run("init", folder, "--key", "user_id", "--time", "at")
        assert code == 0, said
        assert "records" not in said
