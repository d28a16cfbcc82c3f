"""A directory of pipelines: defaults of project.toml, connections, names, warehouses, the graph, and the place of every problem."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.config.file import ConfigFile, Text
from sessionlake.config.graph import Edge, Graph, graph_of
from sessionlake.config.load import load_config
from sessionlake.config.operators import OPERATORS
from sessionlake.config.problems import InvalidConfigError
from sessionlake.config.project import load_project, problems_with, read_project
from sessionlake.config.show import shown
from sessionlake.errors import ConfigError

Write = Callable[..., Path]
PROJECT = """\
[pipeline]
warehouse = "lake"
shards = 2

[connections.broker]
kind = "kafka"
bootstrap_servers = "kafka:9092"
options = { "kafka.security.protocol" = "SSL" }

[connections.files]
kind = "files"
path = "events"
format = "json"
"""
CLICKS = """\
[source]
connection = "files"

[event]
key = "user"
time = "at"

[session]
gap = "10 minutes"
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes the files of a project by their names."""

    def written(**texts: str) -> Path:
        for name, text in {"project": PROJECT, **texts}.items():
            (tmp_path / f"{name}.toml").write_text(text)
        return tmp_path

    return written


def problems(root: Path) -> list[str]:
    return [str(problem).replace(f"{root}/", "") for problem in read_project(root).problems]


def test_a_pipeline_has_the_name_of_its_file_and_the_projects_defaults(write: Write) -> None:
    root = write(clicks=CLICKS, visits=f'[pipeline]\nname = "seen"\nshards = 7\n{CLICKS}')
    clicks, seen = load_project(root).configs.values()
    assert (clicks.pipeline.name, clicks.pipeline.shards) == ("clicks", 2)
    assert clicks.pipeline.warehouse == f"{root}/lake/clicks"
    assert (seen.pipeline.name, seen.pipeline.shards) == ("seen", 7)
    assert seen.pipeline.warehouse == f"{root}/lake/seen"
    assert clicks.source.path == f"{root}/events"
    assert clicks.driver_store_dir != seen.driver_store_dir
    assert clicks.data_docs != seen.data_docs


def test_a_pipelines_own_warehouse_is_taken_as_it_is(write: Write) -> None:
    root = write(clicks=f'[pipeline]\nwarehouse = "s3://elsewhere/clicks"\n{CLICKS}')
    assert load_config(root / "clicks.toml").pipeline.warehouse == "s3://elsewhere/clicks"


def test_an_empty_project_file_is_enough(write: Write) -> None:
    root = write(
        project="", clicks=CLICKS.replace('connection = "files"', 'kind = "files"\npath = "e"\nformat = "json"')
    )
    (config,) = load_project(root).configs.values()
    assert config.pipeline.warehouse == f"{root}/warehouse/clicks"


def test_without_a_project_file_a_config_is_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "clicks.toml").write_text(
        '[pipeline]\nname = "c"\nwarehouse = "w"\n'
        + CLICKS.replace('connection = "files"', 'kind = "files"\npath = "e"\nformat = "json"')
    )
    config = load_config(tmp_path / "clicks.toml")
    assert (config.pipeline.warehouse, config.data_docs) == (f"{tmp_path}/w", tmp_path / "quality")
    with pytest.raises(ConfigError, match=r"has no project\.toml; add one"):
        read_project(tmp_path)


def test_keys_of_a_connection_are_defaults(write: Write) -> None:
    source = 'connection = "broker"\ntopic = "t"\nformat = "json"\noptions = { "kafka.client.id" = "me" }\ntypes = { user = "string", at = "timestamp" }'
    root = write(clicks=CLICKS.replace('connection = "files"', source))
    read = load_config(root / "clicks.toml").source
    assert (read.bootstrap_servers, read.topic) == ("kafka:9092", "t")
    assert read.options == {"kafka.security.protocol": "SSL", "kafka.client.id": "me"}


def test_the_sides_of_a_join_and_a_sink_have_connections_too(write: Write) -> None:
    side = 'size = "1 hour"\ncolumns = ["v"]\nsource = { connection = "files" }\nevent = { time = "at" }\n'
    sink = '[sink.kafka]\nconnection = "sending"\ntopic = "pairs"\n'
    text = f'[join]\non = ["user"]\nretention = "1 day"\n[join.left]\nname = "l"\n{side}[join.right]\nname = "r"\n{side}{sink}'
    root = write(project=f'{PROJECT}[connections.sending]\nbootstrap_servers = "k:1"\n', pairs=text)
    config = load_config(root / "pairs.toml")
    assert {one.source.path for one in config.inputs.values()} == {f"{root}/events"}
    assert config.sink.kafka is not None
    assert config.sink.kafka.bootstrap_servers == "k:1"


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"clicks": CLICKS.replace("files", "fles")}, ["clicks.toml:2: source.connection: 'fles' is no connection of project.toml (did you mean 'files'?); write one of broker, files, or add it as [connections.fles]"]),
        ({"clicks": CLICKS.replace('"files"', '["files"]')}, ["clicks.toml:2: source.connection: ['files'] is not a text; write the name of a connection in quotes"]),
        ({"project": PROJECT + "[event]\nkey = 'u'\n", "clicks": CLICKS}, ["project.toml:14: event: is no section of a project; write pipeline, compact, quality, metrics, lineage, serve, airflow or connections, or move it to a pipeline's file"]),
        ({"project": PROJECT.replace("shards = 2", "shards = 'two'"), "clicks": CLICKS}, ["project.toml:3: pipeline.shards: 'two' is not a whole number; write 4"]),
        ({"project": PROJECT.replace("shards", "name = 'x'\nshards"), "clicks": CLICKS}, ["project.toml:3: pipeline.name: each pipeline has its own; remove it here"]),
        ({"project": PROJECT.replace('format = "json"', 'format = "xml"'), "clicks": CLICKS}, ["project.toml:13: source.format: 'xml' is not allowed; write 'json', 'csv', 'parquet', 'text', 'avro' or 'protobuf'"]),
        ({"a": CLICKS.replace("10 minutes", "soon"), "b": CLICKS.replace("user", "")}, ["a.toml:9: session.gap: 'soon' is not a duration; write a number and a unit, as in '30 minutes'"]),
        ({"a": f"[pipeline]\nname = 'b'\n{CLICKS}", "b": CLICKS}, ["b.toml: pipeline.name: 'b' is the name of a.toml, too; each pipeline of a project has its own, write another one"]),
        ({"a": f"[pipeline]\nwarehouse = 'lake/b'\n{CLICKS}", "b": CLICKS}, ["project.toml:2: pipeline.warehouse: 'lake/b' is the warehouse of a.toml, too; use one for each pipeline"]),
        ({"a": f"[pipeline]\nwarehouse = 'lake'\n{CLICKS}", "b": CLICKS, "c": CLICKS}, ["a.toml:2: pipeline.warehouse: 'lake' has the warehouse of b.toml, c.toml in it; use a folder in which no other pipeline has its own"]),
        ({"a": CLICKS, "b": f"[pipeline]\nwarehouse = 'lake/a/b'\n{CLICKS}"}, ["b.toml:2: pipeline.warehouse: 'lake/a/b' is in the warehouse of a.toml, 'lake/a'; use a folder outside of it"]),
        ({"a": f"[pipeline]\nwarehouse = 's3a://x/y/'\n{CLICKS}", "b": f"[pipeline]\nwarehouse = 's3://x/y/z'\n{CLICKS}"}, ["a.toml:2: pipeline.warehouse: 's3a://x/y' has the warehouse of b.toml in it; use a folder in which no other pipeline has its own"]),
        ({"a": f"[pipeline]\nwarehouse = 'lake/b2'\n{CLICKS}", "b": CLICKS}, []),
        ({"project": "[pipeline\n", "a": CLICKS}, ["project.toml:1: is no valid TOML (Expected ']' at the end of a table declaration); mend that line"]),
        ({"9lives": CLICKS}, ["9lives.toml: pipeline.name: '9lives' must be letters, digits, _ and -; write for example 'clicks'"]),
    ],
)  # fmt: skip
def test_each_problem_is_a_line_with_its_place(write: Write, texts: dict[str, str], said: list[str]) -> None:
    root = write(**texts)
    assert [line.replace(str(root) + "/", "") for line in problems(root)] == said


def test_a_file_that_is_not_written_yet_is_judged_in_its_project(write: Write, tmp_path: Path) -> None:
    root = write(a=CLICKS, b=f"[pipeline]\nwarehouse = 'lake/x/b'\n{CLICKS}", c=reading("a") + "\n", d=reading("d"))
    before = problems(root)

    def found(name: str, text: str) -> list[str]:
        new = ConfigFile.of(Text(str(root / f"{name}.toml"), text, tomlkit.parse(text).unwrap()))
        return [str(problem).replace(f"{root}/", "") for problem in problems_with(new)]

    assert found("e", CLICKS) == []
    assert found("d", f"\n{reading('d')}") == [], "a circle that is there already, a line further down"
    assert found("b", CLICKS) == [], "in the place of the one that is there"
    (told,) = found("x", CLICKS)
    assert told.startswith("b.toml:2: pipeline.warehouse: 'lake/x/b' is in the warehouse of x.toml, 'lake/x';")
    (told,) = found("f", f"[pipeline]\nname = 'A'\n{CLICKS}")
    assert told.startswith("f.toml:2: pipeline.name: 'A' is the name of a.toml, too;")
    (told,) = found("a", f"[pipeline]\nwarehouse = 'lake'\n{CLICKS}")
    assert told.startswith("a.toml:2: pipeline.warehouse: 'lake' has the warehouse of b.toml, c.toml, d.toml in it;")
    assert problems(root) == before != []
    alone = Text(str(tmp_path.parent / "alone.toml"), CLICKS, {})
    assert problems_with(ConfigFile.of(alone)) == []


def test_names_that_differ_in_case_alone_are_one_name(write: Write) -> None:
    root = write(a=f"[pipeline]\nname = 'Visits'\n{CLICKS}", visits=CLICKS)
    (line,) = problems(root)
    assert line.startswith("visits.toml: pipeline.name: 'visits' is the name of a.toml, too;")


def test_problems_of_all_files_come_at_once_and_once(write: Write) -> None:
    wrong = CLICKS.replace("10 minutes", "soon")
    root = write(project=PROJECT.replace("shards = 2", "shards = 0"), a=wrong, b=wrong)
    assert [line.partition(": ")[0] for line in problems(root)] == ["a.toml:9", "project.toml:3", "b.toml:9"]


def reading(name: str, table: str = "late_events") -> str:
    return CLICKS.replace('connection = "files"', f'kind = "delta"\npath = "lake/{name}/{table}"')


def test_a_source_in_another_ones_warehouse_is_an_edge(write: Write) -> None:
    project = load_project(write(a_last=reading("clicks", "late_events"), clicks=CLICKS))
    assert list(project.members) == ["clicks", "a_last"]
    (edge,) = project.graph.edges
    assert (edge.upstream, edge.table, edge.downstream, edge.at) == ("clicks", "late_events", "a_last", "source.path")


def test_a_circle_is_a_problem(write: Write) -> None:
    root = write(a=reading("c"), b=reading("a"), c=reading("b"))
    (line,) = problems(root)
    assert line.split(": ")[1:3] == ["source.path", "closes a circle"]
    assert "(each is read by the next one)" in line


def test_each_circle_is_a_problem(write: Write) -> None:
    root = write(a=reading("b"), b=reading("a"), c=reading("d"), d=reading("c"), e=reading("e"))
    assert len(problems(root)) == 3


def test_results_are_an_edge_and_their_table_is_no_source(write: Write) -> None:
    results = CLICKS.replace('connection = "files"', 'kind = "results"\nof = "clicks"\nrows = "final"')
    graph = load_project(write(clicks=CLICKS, days=results)).graph
    assert graph.edges == (Edge("clicks", "sessions_live", "days", "source.of"),)
    (told,) = problems(write(clicks=CLICKS, days=reading("clicks", "session_changelog")))
    assert told.endswith("which change; write kind = 'results' and of = 'clicks'")


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))))  # fmt: skip
def test_the_order_has_each_after_all_that_it_reads(drawn: tuple[int, set[tuple[int, int]]]) -> None:
    count, pairs = drawn
    configs = {
        f"p{i}": _Config(f"/lake/p{i}", [f"/lake/p{up}/x" for up, down in sorted(pairs) if down == i])
        for i in range(count)
    }
    graph, found = graph_of(configs)  # type: ignore[arg-type]
    assert sorted(graph.names) == sorted(configs)
    if not found:
        places = {name: at for at, name in enumerate(graph.names)}
        assert all(places[edge.upstream] < places[edge.downstream] for edge in graph.edges)
    assert bool(found) == _has_circle(count, pairs)


class _Config:
    """What graphs look at."""

    def __init__(self, warehouse: str, paths: list[str]) -> None:
        self.pipeline = type("P", (), {"warehouse": warehouse})
        self.entry = OPERATORS["session"]
        entry = type("E", (), {"is_table": True, "is_pipeline": False})
        sides = [type("S", (), {"entry": entry, "path": path, "place_at": "source.path"}) for path in paths]
        self.inputs = {str(i): type("I", (), {"source": side, "lookup": []}) for i, side in enumerate(sides)}


def _has_circle(count: int, pairs: set[tuple[int, int]]) -> bool:
    """Say whether a walk of as many steps as there are pipelines exists: then one comes twice."""
    at = set(range(count))
    for _ in range(count):
        at = {down for up, down in pairs if up in at}
    return bool(at)


def test_only_leaves_the_others_and_their_edges_out(write: Write) -> None:
    project = load_project(write(clicks=CLICKS, late=reading("clicks"), visits=CLICKS))
    assert project.only(["late"]).graph == Graph(("late",), ())
    with pytest.raises(ConfigError, match=r"--only: 'x' is no pipeline of .*; write one of clicks, visits, late"):
        project.only(["x"])


def test_a_directory_and_the_projects_own_file_are_no_configs(write: Write) -> None:
    root = write(clicks=CLICKS)
    with pytest.raises(ConfigError, match=r"is a directory; name a pipeline's file \(.*clicks\.toml\)"):
        load_config(root)
    with pytest.raises(ConfigError, match="has the defaults of a project's pipelines; name a pipeline's file"):
        load_config(root / "project.toml")


def test_show_is_the_same_config_with_the_place_of_each_value(write: Write, tmp_path: Path) -> None:
    root = write(clicks=CLICKS)
    text = shown(ConfigFile.read(root / "clicks.toml")).replace(f"{root}/", "")
    assert [line.split() for line in text.splitlines() if "#" in line] == [
        ["name", "=", '"clicks"', "#", "the", "file's", "name"],
        ["warehouse", "=", '"lake/clicks"', "#", "project.toml:2"],
        ["shards", "=", "2", "#", "project.toml:3"],
        ["kind", "=", '"files"', "#", "project.toml:11"],
        ["path", "=", '"events"', "#", "project.toml:12"],
        ["format", "=", '"json"', "#", "project.toml:13"],
        ["key", "=", '"user"', "#", "clicks.toml:5"],
        ["time", "=", '"at"', "#", "clicks.toml:6"],
        ["gap", "=", '"10', 'minutes"', "#", "clicks.toml:9"],
    ]
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "clicks.toml").write_text(text.replace('"lake', '"../lake').replace('"events', '"../events'))
    other, config = load_config(alone / "clicks.toml"), load_config(root / "clicks.toml")
    assert (
        other.model_copy(
            update={
                "directory": config.directory,
                "project_warehouse": config.project_warehouse,
                "pipeline": config.pipeline,
            }
        )
        == config
    )


def test_show_gives_the_sections_of_a_list_no_numbers(write: Write) -> None:
    lookup = '\n[[lookup]]\nname = "users"\npath = "users"\nformat = "csv"\non = "user = id"\ncolumns = ["plan"]\ntypes = { id = "string" }\n'
    text = shown(ConfigFile.read(write(clicks=CLICKS + lookup) / "clicks.toml"))
    assert tomlkit.parse(text).unwrap()["lookup"][0]["types"] == {"id": "string"}


@pytest.mark.parametrize("name", ["a\n[sink.postgres]\nurl = 'x'\n#", "a\rb", "a\x1b[2Jb", "a\u2028b"])
def test_show_writes_no_line_of_a_files_name(write: Write, name: str) -> None:
    root = write(clicks=CLICKS)
    file = root / f"{name}.toml"
    (root / "clicks.toml").rename(file)
    text = shown(ConfigFile.read(file))
    parsed = tomlkit.parse(text).unwrap()
    assert parsed.pop("pipeline")["name"] == name
    assert "sink" not in parsed
    assert not {*map(ord, text)} & {*range(10), *range(11, 32), 127}


def test_schedules_are_checked(write: Write) -> None:
    root = write(clicks=CLICKS + '[airflow.schedules]\ncompact = "at night"\n')
    (line,) = problems(root)
    assert (
        line
        == "clicks.toml:10: airflow.schedules: compact = 'at night' is no schedule; write five fields of cron, as in '0 2 * * *', one of @hourly, @daily, @weekly, @monthly, or 'off'"
    )


def test_a_text_that_is_no_file_has_its_project_beside_its_path(write: Write) -> None:
    root = write(clicks="")
    file = ConfigFile.of(Text(str(root / "new.toml"), CLICKS, {"session": {"gap": "1 hour"}}))
    assert file.merged()["pipeline"]["name"] == "new"


def test_a_wrong_config_is_an_error_of_its_own_type(write: Write) -> None:
    with pytest.raises(InvalidConfigError):
        load_project(write(clicks=CLICKS.replace("gap", "gape")))
