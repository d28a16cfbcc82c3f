"""The snippets of README and of docs/first-pipeline.md do what these pages say, as they are written there.

Commands that need no JVM run, on a pipeline that is made of the page's own config. The others' words go through their parsers,
which know options, choices and files; UNRUN says which, and what runs them instead.
"""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.config.project import load_project
from sessionlake.stream.run import run
from tests.infra.infra_files import ROOT

README, FIRST = ((ROOT / page).read_text() for page in ("README.md", "docs/first-pipeline.md"))
PAGES = f"{README}\n{FIRST}"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
UNRUN = {
    "demo": "takes minutes: tests/package/test_wheel_runs.py runs it from the wheel, tests/cli/test_errors.py `demo serve`",
    "bootstrap": "starts Spark; the pipeline below is made by the function that it calls",
    "run": "as bootstrap",
    "serve": "answers until it is stopped: tests/serve/test_server.py",
    "metrics": "as serve: tests/observe/test_metrics.py",
    "publish": "needs a broker: tests/jobs/test_publish.py",
    "register": "starts Spark with a metastore: tests/project/test_catalog.py",
    **dict.fromkeys(
        [
            "reprocess-late",
            "expire",
            "forget",
            "compact",
            "backfill",
            "quality",
            "redeem",
            "rebuild",
            "backup",
            "restore",
        ],
        "starts Spark: tests/jobs runs each, tests/airflow/test_live.py some by DAG",
    ),
}
START = datetime(2026, 1, 1, 12, tzinfo=UTC)


def fenced(language: str, text: str = PAGES) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def lines() -> Iterator[list[str]]:
    """Yield the words of each line of the console blocks, `$(...)` and its comment as a shell has them."""
    for block in fenced("console"):
        for line in block.splitlines():
            known = line.replace("$(sessionlake files pipelines)", str(ROOT / "pipelines"))
            if words := shlex.split(re.sub(r"^\.venv/bin/", "", known), comments=True):
                yield words


def of_sessionlake() -> list[list[str]]:
    """Return the words after `sessionlake`, also of what spark-submit runs."""
    submitted = ["spark-submit", str(ROOT / "pipelines" / "command.py")]
    found = [words[1:] for words in lines() if words[0] == "sessionlake"]
    found += [words[2:] for words in lines() if words[:2] == submitted]
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


RUN = [words for words in of_sessionlake() if words[0] not in UNRUN]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a directory that has the files which the pages' commands name."""
    write_events(tmp_path / "events")
    (tmp_path / "clicks.toml").write_text(config_text())
    (tmp_path / "keys").write_text("user-7\n")
    (tmp_path / "keys").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def pipeline(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run README's pipeline, with the class of docs/aggregates.md in the place of the one it names."""
    root = tmp_path_factory.mktemp("readme")
    write_events(root / "events")
    (root / "clicks.toml").write_text(config_text().replace("[pipeline]\n", '[pipeline]\ncode = "lib"\n'))
    package = root / "lib" / "mypackage"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (code,) = (
        code for code in fenced("python", (ROOT / "docs" / "aggregates.md").read_text()) if "class NetLines" in code
    )
    (package / "mymodule.py").write_text(code)
    run(spark, load_config(root / "clicks.toml"), once=True)
    for config in load_project(write_project(root / "pipelines")).configs.values():
        run(spark, config, once=True)
    return root


def write_project(folder: Path) -> Path:
    """Write a project of the pipelines that the pages' commands name."""
    folder.mkdir()
    (folder / "project.toml").touch()
    source = '[source]\nkind = "files"\npath = "../events"\nformat = "json"\n[event]\nkey = "user_id"\ntime = "happened_at"\n'
    (folder / "visits.toml").write_text(f'{source}[session]\ngap = "30 minutes"\n')
    (folder / "customers.toml").write_text(f'{source}[table]\ncolumns = ["url"]\n')
    return folder


def config_text() -> str:
    (text,) = fenced("toml", FIRST)
    return text


def test_the_config_of_readme_is_one(tmp_path: Path) -> None:
    write_events(tmp_path / "events")
    (tmp_path / "clicks.toml").write_text(fenced("toml", README)[0])
    config = load_config(tmp_path / "clicks.toml")
    whole = tomllib.loads(config_text())
    assert config.pipeline.name == "clicks"
    for section, values in tomllib.loads(fenced("toml", README)[0]).items():
        assert values.items() <= whole[section].items(), section


def test_readme_is_at_most_150_lines() -> None:
    assert len(README.splitlines()) <= 150


def write_events(folder: Path) -> None:
    """Write 400 clicks of ten users, two sessions each."""
    folder.mkdir()
    rows = [
        {
            "user_id": f"user-{n % 10}",
            "happened_at": (START + timedelta(seconds=n * 7, hours=n // 200)).isoformat(),
            "event_id": f"e{n}",
            "price": n % 5 + 0.5,
            "url": f"/p{n % 3}",
            "load_ms": n,
            "added": 3,
            "deleted": 1,
        }
        for n in range(400)
    ]
    (folder / "1.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_each_line_of_the_consoles_is_known_here() -> None:
    """A new kind of line needs a check of its own."""
    assert {words[0] for words in lines()} == {"make", "pip", "sessionlake", "spark-submit", "chmod"}
    assert {words[1] for words in lines() if words[0] == "make"} <= set(TARGETS)
    installed = [
        re.fullmatch(r"sessionlake(?:\[(.*)\])?", words[2]) for words in lines() if words[:2] == ["pip", "install"]
    ]
    assert {extra for found in installed if found and found[1] for extra in found[1].split(",")} <= set(EXTRAS)
    assert all(installed)
    assert sorted(UNRUN) == sorted({words[0] for words in of_sessionlake()} - {words[0] for words in RUN})


def test_the_first_result_needs_no_extra_and_no_clone() -> None:
    assert [" ".join(words[:2]) for words in lines()][:3] == ["pip install", "sessionlake try", "sessionlake init"]
    assert next(lines())[2] == "sessionlake"


def test_the_install_for_the_demo_has_what_it_uses() -> None:
    words = next(words for words in lines() if words[0] == "pip" and "demo" in words[2])
    assert {"demo", "quality", "serve"} <= set(re.split(r"[\[\],]", words[2]))


@pytest.mark.parametrize("words", of_sessionlake(), ids=" ".join)
@pytest.mark.usefixtures("place")
def test_commands_take_these_words(words: list[str]) -> None:
    command = main.get_command(click.Context(main), words[0])
    assert command, words[0]
    command.make_context(words[0], words[1:])


def test_init_writes_a_config_that_can_be_loaded(place: Path) -> None:
    (place / "clicks.toml").unlink()
    words = next(words for words in RUN if words[:2] == ["init", "events/"])
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert load_config(place / "clicks.toml").event.key == "user_id"


@pytest.mark.parametrize("words", [words for words in RUN if words[0] not in {"init", "files"}], ids=" ".join)
def test_commands_without_a_jvm_run(pipeline: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    monkeypatch.chdir(pipeline)
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout


def test_files(tmp_path: Path) -> None:
    (words,) = re.findall(r"`sessionlake (files dags --to) [^`]*`", PAGES)
    assert CliRunner().invoke(main, [*words.split(), str(tmp_path)]).exit_code == 0
    assert (tmp_path / "reprocess_late.py").is_file()


def test_python_reads_the_sessions(
    spark: SparkSession, pipeline: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(pipeline)
    code, again = (code for code in fenced("python") if "read_sessions" in code)
    assert code == again
    names: dict[str, object] = {"spark": spark}
    exec(code, names)  # noqa: S102 (our own page)
    assert "landing_page" in capsys.readouterr().out
    found = eval(code.splitlines()[-1], names)  # noqa: S307
    assert found.aggregate("count(*), sum(event_count), sum(net)").fetchall() == [(20, 400, 800)]
