"""A project: a directory of pipelines, a file each, with the defaults of `project.toml`."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sessionlake.config.config import Config
from sessionlake.config.file import PROJECT_FILE, ConfigFile, pipeline_files
from sessionlake.config.graph import Graph, graph_of
from sessionlake.config.load import config_of, load_config
from sessionlake.config.paths import normal_path
from sessionlake.config.problems import Gathered, Problem, problems_of
from sessionlake.errors import ConfigError, SessionlakeError


@dataclass(frozen=True)
class Member:
    """A pipeline of a project."""

    name: str
    file: ConfigFile
    """Its file, in the directory as it was named."""
    config: Config

    @property
    def path(self) -> str:
        """The path of its file."""
        return self.file.own.path


@dataclass(frozen=True)
class Project:
    """The pipelines of a directory."""

    directory: str
    members: Mapping[str, Member]
    """By name: each after those that it reads."""
    graph: Graph

    @property
    def configs(self) -> dict[str, Config]:
        """The configs by name, in the order of the graph."""
        return {name: member.config for name, member in self.members.items()}

    def only(self, names: list[str]) -> "Project":
        """Return the project of some of its pipelines; ConfigError if there is none of a name."""
        for name in names:
            if name not in self.members:
                raise ConfigError(
                    f"--only: {name!r} is no pipeline of {self.directory!r}; write one of {', '.join(self.members)}"
                )
        members = {name: member for name, member in self.members.items() if name in names}
        edges = tuple(edge for edge in self.graph.edges if {edge.upstream, edge.downstream} <= set(members))
        return Project(self.directory, members, Graph(tuple(members), edges))


@dataclass(frozen=True)
class Loaded:
    """A project as far as it could be read."""

    project: Project
    """The pipelines that are right."""
    problems: tuple[Problem, ...]
    """All that is wrong in the files, each with its place."""


def is_project(path: str | Path) -> bool:
    """Say whether a path names a project rather than one pipeline: a directory."""
    return Path(path).is_dir()


def configs_of(path: str | Path) -> list[Config]:
    """Return the config of a pipeline's file, or those of a project, each after those that it reads."""
    return list(load_project(path).configs.values()) if is_project(path) else [load_config(path)]


def config_named(directory: str | Path, name: str) -> Config:
    """Return the config of one pipeline of a project, whatever is wrong in the files of others; ConfigError if there is none of the name."""
    loaded = read_project(directory)
    members = loaded.project.members
    if name not in members:
        found = Gathered()
        found.add(*loaded.problems)
        found.raise_any()
        raise ConfigError(f"project: {name!r} is no pipeline of {str(directory)!r}; write one of {', '.join(members)}")
    return members[name].config


def load_project(directory: str | Path) -> Project:
    """Read and check all files of a project; InvalidConfigError, a line for each problem of any file."""
    loaded = read_project(directory)
    found = Gathered()
    found.add(*loaded.problems)
    found.raise_any()
    return loaded.project


def read_project(directory: str | Path) -> Loaded:
    """Read a project, with the problems of its files; ConfigError if the directory is no project."""
    return _read(directory, _files(directory))


def problems_with(new: ConfigFile) -> list[Problem]:
    """Return the problems that a project would get with a file that is not written yet, in the place of that file if it is there."""
    if new.project is None:
        return []
    directory = Path(new.project.path).parent
    paths = [str(directory / file.name) for file in pipeline_files(directory)]
    # Lines move with an edit.
    known = [replace(problem, line=None, column=None) for problem in _read(directory, paths).problems]
    same = next((path for path in paths if Path(path).resolve() == Path(new.own.path).resolve()), None)
    there = [path for path in paths if path != same]
    return [one for one in _read(directory, there, new).problems if replace(one, line=None, column=None) not in known]


def _read(directory: str | Path, paths: Iterable[str], *further: ConfigFile) -> Loaded:
    """Return the project of files, and of further ones that are read already."""
    found, members = Gathered(), dict[str, Member]()
    given: list[str | ConfigFile] = [*paths, *further]
    for one in given:
        try:
            file = one if isinstance(one, ConfigFile) else ConfigFile.read(one)
            config = config_of(file)
        except SessionlakeError as error:
            found.add(*problems_of(error))
            continue
        name = config.pipeline.name
        # SQL, which knows a pipeline as a schema, and some file systems do not tell case apart.
        same = next((member for member in members.values() if member.name.lower() == name.lower()), None)
        if same is not None:
            told = (
                f"{name!r} is the name of {same.path}, too; each pipeline of a project has its own, write another one"
            )
            found.add(*file.located([Problem("pipeline.name", told)]))
        else:
            members[name] = Member(name, file, config)
    for member, problem in _shared_places(members.values()):
        found.add(*member.file.located([problem]))
    graph, problems = graph_of({name: member.config for name, member in members.items()})
    for name, problem in problems:
        found.add(*members[name].file.located([problem]))
    ordered = {name: members[name] for name in graph.names}
    return Loaded(Project(str(directory), ordered, graph), tuple(found.problems))


def _files(directory: str | Path) -> list[str]:
    files = pipeline_files(directory)
    if not (Path(directory) / PROJECT_FILE).is_file():
        raise ConfigError(
            f"project: {str(directory)!r} has no {PROJECT_FILE}; add one, which may be empty, or name the file of one pipeline"
        )
    if not files:
        raise ConfigError(f"project: {str(directory)!r} has no pipelines; add a file for each, such as clicks.toml")
    return [str(Path(directory) / file.name) for file in files]


def _shared_places(members: Iterable[Member]) -> Iterator[tuple[Member, Problem]]:
    """Yield problems of pipelines that write where another one writes, each with the pipeline."""
    seen: dict[str, Member] = {}
    for member in members:
        place = normal_path(member.config.pipeline.warehouse)
        if place in seen:
            told = f"{member.config.pipeline.warehouse!r} is the warehouse of {seen[place].path}, too; use one for each pipeline"
            yield member, Problem("pipeline.warehouse", told)
        seen.setdefault(place, member)
    yield from _nested(seen)


def _nested(homes: Mapping[str, Member]) -> Iterator[tuple[Member, Problem]]:
    """Yield problems of pipelines whose tables would lie among those of another one, each with a pipeline whose own file says so."""
    for place, outer in homes.items():
        around, key = outer.config.pipeline.warehouse, "pipeline.warehouse"
        inner = [member for path, member in homes.items() if path.startswith(f"{place}/")]
        if inner and key in outer.file.own.places:
            told = f"{around!r} has the warehouse of {', '.join(one.path for one in inner)} in it; use a folder in which no other pipeline has its own"
            yield outer, Problem(key, told)
            continue
        for one in inner:
            told = f"{one.config.pipeline.warehouse!r} is in the warehouse of {outer.path}, {around!r}; use a folder outside of it"
            yield one, Problem(key, told)
