"""Which pipelines of a project read which others: a source, or a table to look up, in the warehouse of another pipeline is an edge."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from sessionlake.config.config import Config
from sessionlake.config.operators import named
from sessionlake.config.paths import normal_path
from sessionlake.config.problems import Problem


@dataclass(frozen=True)
class Edge:
    """A pipeline that reads a table of another one."""

    upstream: str
    table: str
    """The table of the upstream pipeline that is read."""
    downstream: str
    at: str
    """The key of the downstream pipeline's config that names the table."""

    def fields(self) -> dict[str, str]:
        """Return it as JSON values."""
        return {"from": self.upstream, "reads": self.table, "to": self.downstream}


@dataclass(frozen=True)
class Graph:
    """The pipelines of a project by name, and their edges."""

    names: tuple[str, ...]
    """Each after all that it reads, otherwise by name."""
    edges: tuple[Edge, ...]

    def upstream(self, name: str) -> list[str]:
        """Return the pipelines that a pipeline reads, each once."""
        return list(dict.fromkeys(edge.upstream for edge in self.edges if edge.downstream == name))

    def downstream(self, name: str) -> list[str]:
        """Return the pipelines that read a pipeline, each once."""
        return list(dict.fromkeys(edge.downstream for edge in self.edges if edge.upstream == name))

    def with_readers(self, names: Iterable[str]) -> set[str]:
        """Return pipelines and all that read them, also through others."""
        found = set(names)
        for name in self.names:
            if found.intersection(self.upstream(name)):
                found.add(name)
        return found


def edges_of(configs: Mapping[str, Config]) -> list[Edge]:
    """Return the edges between pipelines.

    >>> edges_of({})
    []
    """
    homes = {f"{normal_path(config.pipeline.warehouse)}/": name for name, config in configs.items()}
    found = []
    for name, config in configs.items():
        for path, at in _read(config):
            home = max((home for home in homes if path.startswith(home)), key=len, default=None)
            if home is not None:
                found.append(Edge(homes[home], path.removeprefix(home), name, at))
    return found


def _read(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the paths of the tables that a pipeline reads, as its source or to look events up, with the keys that name them."""
    for side in config.inputs.values():
        if side.source.entry.is_pipeline and (read := config.upstream.get(side.source.AT)) is not None:
            # By the view that a user knows, and not by the table of its changes.
            yield normal_path(f"{read.warehouse}/{read.changelog.live}"), side.source.place_at
        elif side.source.entry.is_table:
            yield normal_path(side.source.path), side.source.place_at
        for section in side.lookup:
            at, upstream = f"{side.lookup_at}.{section.name}", side.looked_up.get(section.name)
            if upstream is not None:
                yield normal_path(f"{upstream.warehouse}/{named(upstream.entry.changelog).live}"), f"{at}.table"
            elif section.path is not None and section.format is None:
                yield normal_path(section.path), f"{at}.path"


def _read_past(configs: Mapping[str, Config], edges: Iterable[Edge]) -> Iterator[tuple[str, Problem]]:
    """Yield a problem for each source that is the table of a pipeline's results, which is no stream of rows: rows in it change."""
    for edge in edges:
        changelog = named(configs[edge.upstream].entry.changelog)
        sources = {side.source.place_at: side.source for side in configs[edge.downstream].inputs.values()}
        source = sources.get(edge.at)
        if source is not None and not source.entry.is_pipeline and edge.table in changelog.tables:
            told = f"{source.path!r} has the results of {edge.upstream!r}, which change; write kind = 'results' and of = {edge.upstream!r}"
            yield edge.downstream, Problem(edge.at, told)


def graph_of(configs: Mapping[str, Config]) -> tuple[Graph, list[tuple[str, Problem]]]:
    """Return the graph of pipelines, and its problems, each with the name of the pipeline that has it.

    A cycle is a problem: its edges are left out of the order.
    """
    edges = edges_of(configs)
    problems = list(_read_past(configs, edges))
    kept = list(edges)
    while True:
        above = {name: sorted({e.upstream for e in kept if e.downstream == name}) for name in sorted(configs)}
        try:
            order = tuple(TopologicalSorter(above).static_order())
        except CycleError as error:
            circle = [str(name) for name in error.args[1]]
            # graphlib names each pipeline after one that it reads.
            edge = next(e for e in kept if (e.upstream, e.downstream) == (circle[0], circle[1]))
            told = f"closes a circle: {' -> '.join(circle)} (each is read by the next one); let one of them read its events from elsewhere"
            problems.append((edge.downstream, Problem(edge.at, told)))
            kept.remove(edge)
        else:
            return Graph(order, tuple(edges)), problems
