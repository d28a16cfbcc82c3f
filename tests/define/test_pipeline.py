"""A pipeline in Python is that of the file it would be: the same config, the same errors, the same results."""

import json
import shutil
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import sessionlake
from sessionlake import (
    Count,
    CountedWindows,
    Delta,
    Emit,
    Event,
    Files,
    Joins,
    Kafka,
    KeyedTable,
    Left,
    Pipeline,
    Processors,
    Quality,
    Right,
    Sessions,
    Sum,
    Ttl,
    Windows,
)
from sessionlake.config.load import load_config
from sessionlake.config.problems import InvalidConfigError
from sessionlake.errors import ConfigError
from tests.infra.infra_files import ROOT

REST: dict[str, Any] = {
    "warehouse": "lake",
    "source": Files("events", format="json"),
    "event": Event(key="user", time="at", time_unit="us"),
}
HEAD = """\
[pipeline]
name = "clicks"
warehouse = "lake"
[source]
kind = "files"
path = "events"
format = "json"
[event]
key = "user"
time = "at"
time_unit = "us"
"""
SIDE = {"source": Files("events", format="json"), "event": Event(time="at"), "size": "1 hour"}


def clicks(**given: Any) -> Pipeline:
    return Pipeline("clicks", **{**REST, "operator": Sessions(gap="1 hour"), **given})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"operator": Sessions(gap=timedelta(minutes=90))}, '[session]\ngap = "1 hour 30 minutes"'),
        ({"operator": Sessions(gap="1 hour", emit="final")}, '[session]\ngap = "1 hour"\nemit = "final"'),
        (
            {"aggregates": {"n": Count(), "s": Sum("v", where="v > 1"), "m": "max(v)", "own": dict}},
            '[session]\ngap = "1 hour"\n[aggregates]\nn = "count()"\ns = "sum(v) filter (where v > 1)"\nm = "max(v)"\nown = "builtins:dict"',
        ),
        (
            {
                "operator": Windows(kind="hopping", size="1 hour", advance="30 minutes", retention="1 day"),
                "emit": Emit(early="batch"),
                "quality": Quality(max_late_rate=0.5, aggregates={}),
                "serve": None,
            },
            '[window]\nkind = "hopping"\nsize = "1 hour"\nadvance = "30 minutes"\nretention = "1 day"\n[emit]\nearly = "batch"\n[quality]\nmax_late_rate = 0.5',
        ),
        (
            {"operator": CountedWindows(kind="sliding", size=10, retention="1 day", retention_count=10)},
            '[window]\nkind = "sliding"\nby = "count"\nsize = 10\nretention = "1 day"\nretention_count = 10',
        ),
        (
            {"operator": KeyedTable(columns=["a", "b"]), "ttl": Ttl(pattern="index", ttl="1 day")},
            '[table]\ncolumns = ["a", "b"]\n[ttl]\npattern = "index"\nttl = "1 day"',
        ),
        (
            {"operator": Processors(processor="shop.rules:Funnel", retention="1 day", output={"n": "long"})},
            '[process]\nclass = "shop.rules:Funnel"\nretention = "1 day"\noutput = { n = "long" }',
        ),
    ],
)
def test_it_is_the_config_of_the_file(given: dict[str, Any], text: str, tmp_path: Path) -> None:
    (tmp_path / "clicks.toml").write_text(f"{HEAD}{text}\n")
    assert clicks(directory=tmp_path, **given).config == load_config(tmp_path / "clicks.toml")


def test_a_join_has_two_sources(tmp_path: Path) -> None:
    operator = Joins(on=["id"], left=Left(name="l", **SIDE), right=Right(name="r", **SIDE), retention="1 day")
    config = Pipeline("pairs", warehouse="lake", operator=operator, directory=tmp_path).config
    assert {name: side.source.path for name, side in config.inputs.items()} == dict.fromkeys(
        ("left", "right"), str(tmp_path / "events")
    )


@pytest.mark.parametrize(
    ("source", "kind", "place"),
    [
        (Files("e", format="csv"), "files", "e"),
        (Delta("e"), "delta", "e"),
        (Kafka("e", bootstrap_servers="k:9092", format="json"), "kafka", "e"),
    ],
)
def test_a_source_begins_with_its_place(source: Any, kind: str, place: str, tmp_path: Path) -> None:
    found = clicks(source=source, directory=tmp_path).config.source
    assert (found.kind, Path(found.place).name) == (kind, place)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"operator": Sessions(gap="half an hour")}, '[session]\ngap = "half an hour"'),
    ({"operator": Sessions(gap=timedelta(0))}, '[session]\ngap = "0 seconds"'),
    ({"operator": Sessions(gapp="1 hour")}, '[session]\ngapp = "1 hour"'),
    ({"operator": Sessions(gap=3)}, "[session]\ngap = 3"),
    (
        {"operator": Windows(kind="hoping", size="1 hour", retention="1 day")},
        '[window]\nby="time"\nkind="hoping"\nsize="1 hour"\nretention="1 day"',
    ),
    (
        {"operator": Sessions(gap="1 hour"), "serv": {"port": 1}, "ttl": {"pattern": "lru"}},
        '[session]\ngap = "1 hour"\n[serv]\nport = 1\n[ttl]\npattern = "lru"',
    ),
    (
        {"operator": KeyedTable(), "aggregates": {"n": Count()}, "quality": Quality(max_late_rate=2)},
        '[table]\n[aggregates]\nn = "count()"\n[quality]\nmax_late_rate = 2',
    ),
    (
        {"operator": Processors(processor="Funnel", retention="1 day", output={"n": "long"})},
        '[process]\nclass = "Funnel"\nretention = "1 day"\noutput = { n = "long" }',
    ),
]


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_its_errors_are_those_of_the_file(given: dict[str, Any], text: str, tmp_path: Path) -> None:
    (tmp_path / "clicks.toml").write_text(f"{HEAD}{text}\n")
    with pytest.raises(InvalidConfigError) as of_file:
        load_config(tmp_path / "clicks.toml")
    with pytest.raises(InvalidConfigError) as of_python:
        clicks(directory=tmp_path, **given)
    said = [{(problem.key, problem.message) for problem in error.value.problems} for error in (of_python, of_file)]
    assert said[0] == said[1]


def test_a_value_that_no_file_has_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^source\.options\.password: is a bytes; write a text"):
        clicks(source=Kafka("t", bootstrap_servers="k:1", format="json", options={"password": b"secret"}))
    with pytest.raises(ConfigError, match=r"^aggregates\.own: '.*Own' can't be imported"):
        clicks(aggregates={"own": type("Own", (), {"__module__": "__main__"})})
    with pytest.raises(ConfigError, match=r"^operator: is a dict; write for example Sessions"):
        clicks(operator={"gap": "1 hour"})
    with pytest.raises(ConfigError, match=r"^session: is the section of the operator"):
        clicks(session={"gap": "1 hour"})
    with pytest.raises(TypeError, match="'more' needs its key"):
        Files("events", "more")  # type: ignore[misc]


def files() -> list[Path]:
    return [file for file in sorted((ROOT / "pipelines").glob("*.toml")) if file.name != "project.toml"]


@pytest.mark.parametrize("file", files(), ids=lambda file: file.stem)
def test_a_files_text_again_is_the_same_config(file: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(ROOT / "pipelines", tmp_path / "pipelines") / file.name
    before, made = load_config(copy), Pipeline.from_toml(copy)
    copy.write_text(made.to_toml())
    assert made.config == before == load_config(copy) == Pipeline.from_toml(copy).config
    assert before.in_project


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PATHS = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=12)


@given(
    sql=TEXTS,
    path=PATHS,
    grace=st.timedeltas(timedelta(0), timedelta(days=900)),
    rate=st.floats(0, 1),
    options=st.dictionaries(TEXTS, TEXTS | st.integers(-9, 9) | st.booleans(), max_size=3),
    names=st.dictionaries(st.from_regex(r"[A-Za-z][A-Za-z0-9_]{4,9}", fullmatch=True), TEXTS, max_size=3),
    shards=st.integers(1, 4096),
)
def test_any_pipeline_that_is_saved_is_read_as_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    sql: str,
    path: str,
    grace: timedelta,
    rate: float,
    options: dict[str, Any],
    names: dict[str, str],
    shards: int,
) -> None:
    directory = tmp_path_factory.mktemp("saved")
    given: dict[str, Any] = {
        "shards": shards,
        "source": Kafka("t", bootstrap_servers="k:1", format="json", options=options),
        "event": Event(key="user", time="at", where=sql),
        "operator": Sessions(gap="1 hour", grace=grace, retention="1000 days"),
        "aggregates": names,
        "quality": Quality(max_dead_rate=rate, expectations=path),
        "directory": directory,
    }
    try:
        pipeline = clicks(**given)
    except ConfigError:
        return  # two names that differ in case, or an option that is a key of its own
    pipeline.save(directory / "clicks.toml")
    assert load_config(directory / "clicks.toml") == pipeline.config


def test_a_file_elsewhere_is_refused_unless_all_paths_are_absolute(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    relative = clicks(directory=tmp_path)
    with pytest.raises(ConfigError, match=r"^save: .* paths are relative to; save it there, or pass directory="):
        relative.save(tmp_path / "sub" / "clicks.toml")
    assert list((tmp_path / "sub").iterdir()) == []
    source = Files(f"{tmp_path}/events", format="json")
    absolute = clicks(directory=tmp_path, warehouse=f"{tmp_path}/lake", store="/tmp/store", source=source)  # noqa: S108 (never made)
    absolute.save(tmp_path / "sub" / "clicks.toml")
    assert load_config(tmp_path / "sub" / "clicks.toml").source == absolute.config.source


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, pipeline = tmp_path / "clicks.toml", clicks(directory=tmp_path)
    file.write_text("before")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(ConfigError, match=r"can't be written \(No space left on device\)"):
            pipeline.save(file)
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigError, match=r"can't be written \(Is a directory\)"):
        pipeline.save(tmp_path / "other")
    (tmp_path / "other").rmdir()
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]
    pipeline.save(file)
    assert tomllib.loads(file.read_text())["session"] == {"gap": "1 hour"}


def test_it_looks_at_the_source_as_check_does(tmp_path: Path) -> None:
    found = clicks(directory=tmp_path).check()
    assert [problem.key for problem in found.problems] == ["source.path"]


def test_a_harness_has_run_the_rows() -> None:
    with clicks(aggregates={"n": Count()}).test() as harness:
        assert harness.last.changes == []
        harness.process([{"user": "ann", "at": 0}])
        assert [row["n"] for row in harness.last.changes] == [1]
    ahead = {"user": "ann", "at": 3 * 3_600_000_000}
    for clock_us, refused in ((0, 1), (ahead["at"], 0), (None, 0)):
        with clicks(aggregates={"n": Count()}).test([ahead], clock_us=clock_us) as harness:
            assert len(harness.last.dead) == refused
    with pytest.raises(ConfigError, match=r"^drain: "):
        clicks().run(drain=True)


def test_it_runs_on_spark_as_in_the_harness(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"user": user, "at": at * 60_000_000} for user in "ab" for at in (0, 30, 200)]
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = clicks(directory=tmp_path, shards=2, aggregates={"n": Count()})
    batches: list[int] = []
    summary = pipeline.run(once=True, spark=spark, on_commit=lambda batch: batches.append(batch.batch_id))
    assert (summary.batches, summary.counts["accepted"], batches) == (1, len(rows), [0])
    columns = "session_key, epoch_us(session_start) as session_start, n"
    found = sessionlake.read(pipeline.config).project(columns).fetchall()
    with pipeline.test(rows) as harness:
        assert sorted(found) == sorted(
            (row["session_key"], row["session_start"], row["n"]) for row in harness.last.changes
        )
