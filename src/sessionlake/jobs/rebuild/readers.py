"""The pipelines of a project that read a rebuilt one, and what they need after it."""

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
    """Return what a reader needs; None if it follows, as one does that looks events up in the table of a pipeline."""
    again = "rebuild this pipeline, too"
    old = f"names a table of the old warehouse; write {path!r}"
    if LOOKUP in edge.at.split("."):
        return old if edge.at.endswith(".path") else None
    return f"{old}, and {again}" if edge.at.endswith(".path") else f"reads results that are computed anew; {again}"
