"""The commands that show a project's graph, and a config with its project's defaults."""

from collections.abc import Callable, Iterator

import click

from sessionlake.cli.operands import CONFIG, PROJECT, config_argument
from sessionlake.cli.rows import JSON, format_options, print_objects
from sessionlake.cli.shared import console, one_line_errors
from sessionlake.config.file import ConfigFile
from sessionlake.config.graph import Graph
from sessionlake.config.load import config_of
from sessionlake.config.project import Project, load_project
from sessionlake.config.secrets import hide


@click.command("graph")
@config_argument(PROJECT, "project_path")
@format_options(
    tree="lines for people",
    mermaid="a picture for Markdown",
    svg="a file of a picture",
    json="a list with an object for each pipeline, and the tables that it reads of others",
)
@one_line_errors
def graph_command(project_path: str, form: str) -> None:
    """Show which pipelines of a project read which others."""
    project = load_project(project_path)
    if form == JSON:
        print_objects(_objects(project), form)
        return
    if form == "svg":
        from sessionlake.project.picture import svg

        click.echo(svg(project.graph, {name: config.operator for name, config in project.configs.items()}))
        return
    lines = _mermaid(project) if form == "mermaid" else tree(project.graph, lambda name: project.members[name].path)
    for line in lines:
        console.print(line, soft_wrap=True)


@click.command("show")
@config_argument(CONFIG)
@format_options(
    toml="a config, with comments",
    json="a list with an object for each key: its value, and the file and line that set it",
)
@one_line_errors
def show_command(config_path: str, form: str) -> None:
    """Print a config with the defaults of its project, and where each value comes from: file and line."""
    from sessionlake.config.show import shown, values

    file = ConfigFile.read(config_path)
    config_of(file)
    if form == JSON:
        print_objects(values(file), form)
    else:
        click.echo(hide(shown(file)), nl=False)


def tree(graph: Graph, told: Callable[[str], str]) -> Iterator[str]:
    """Yield a line for each pipeline, below the one that it reads; one that reads several is below each of them."""
    lines = [line for name in graph.names if not graph.upstream(name) for line in _branch(graph, name, "", "")]
    width = max((len(line) for line, _ in lines), default=0)
    for line, name in lines:
        yield f"{line:<{width}}  {told(name)}"


def _branch(graph: Graph, name: str, head: str, below: str) -> Iterator[tuple[str, str]]:
    yield f"{head}{name}", name
    children = graph.downstream(name)
    for child in children:
        last = child == children[-1]
        yield from _branch(graph, child, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}")


def _mermaid(project: Project) -> Iterator[str]:
    yield "flowchart LR"
    for name, config in project.configs.items():
        yield f'    {name}["{name}: {config.operator}"]'
    for edge in project.graph.edges:
        yield f"    {edge.upstream} -- {edge.table} --> {edge.downstream}"


def _objects(project: Project) -> Iterator[dict[str, object]]:
    for name, member in project.members.items():
        reads = [edge.fields() for edge in project.graph.edges if edge.downstream == name]
        yield {"name": name, "operator": member.config.operator, "file": member.path, "reads": reads}
