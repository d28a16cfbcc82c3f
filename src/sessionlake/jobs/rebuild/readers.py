"""The project's pipelines that read a rebuilt pipeline, and the commands that they need afterwards."""

from pathlib import Path

from sessionlake.config.file import ConfigFile
from sessionlake.config.graph import Edge
from sessionlake.config.load import load_config
from sessionlake.config.lookups import LOOKUP
from sessionlake.config.project import read_project
from sessionlake.jobs.rebuild.switch import Switch


def readers_need(config_path: str | Path, switch: Switch) -> list[str]:
    """Return a line for each key by which another pipeline reads the old warehouse, and does not follow a switch that is still to be made."""
    file = ConfigFile.read(config_path)
    if file.project is None:
        return []
    project, name = read_project(Path(file.project.path).parent).project, load_config(config_path).pipeline.name
    found = []
    for edge in project.graph.edges:
        need = _need(edge, f"{switch.warehouse.rstrip('/')}/{edge.table}")
        if edge.upstream == name != edge.downstream and need is not None:
            found.append(project.members[edge.downstream].file.placed(f"{edge.at}: {need}"))
    return found


def _need(edge: Edge, path: str) -> str | None:
    """Return what a reader needs; None if it follows by itself, as a reader that looks events up in a pipeline's table."""
    again = "rebuild this pipeline, too"
    old = f"names a table of the old warehouse; write {path!r}"
    if LOOKUP in edge.at.split("."):
        return old if edge.at.endswith(".path") else None
    return f"{old}, and {again}" if edge.at.endswith(".path") else f"reads results that are computed anew; {again}"
