"""The picture of a project's graph: the places of its pipelines, which the page draws upon, too, and the whole as SVG."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from xml.sax.saxutils import escape

from sessionlake.config.graph import Edge, Graph

WIDE, TALL = 150, 46
"""The size of a pipeline's box, pixels."""
_COLUMN, _ROW, _BESIDE, _MARGIN = WIDE + 110, TALL + 12, WIDE + 12, 2
_LEAST = 4
"""The least number of adjacent boxes, for pipelines without edges."""
_SHOWN = 18
_STYLE = (
    "text{font:11px sans-serif;fill:#57606a}.name{font-size:13px;font-weight:600;fill:#1f2328}"
    "rect{fill:#fff;stroke:#8c959f;stroke-width:1.5}path{fill:none;stroke:#0969da;stroke-width:1.8}"
    "@media(prefers-color-scheme:dark){text{fill:#9198a1}.name{fill:#f0f6fc}rect{fill:#151b23;stroke:#656c76}path{stroke:#4493f8}}"
)


@dataclass(frozen=True)
class Layout:
    """The boxes' places in a picture, pixels from the upper left corner."""

    width: int
    height: int
    places: Mapping[str, tuple[int, int]]
    """The upper left corner of each pipeline's box."""

    def fields(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"width": self.width, "height": self.height, "wide": WIDE, "tall": TALL, "places": dict(self.places)}


def layout_of(graph: Graph) -> Layout:
    """Return the layout: a pipeline stands right of all its inputs; pipelines without edges stand in lines below."""
    linked = {name for edge in graph.edges for name in (edge.upstream, edge.downstream)}
    depths: dict[str, int] = {}
    columns: list[list[str]] = []
    for name in (one for one in graph.names if one in linked):
        # Each comes after its inputs. In a circle, which `check` refuses, some do not.
        depths[name] = max((depths.get(above, -1) for above in graph.upstream(name)), default=-1) + 1
        columns += [[]] if depths[name] == len(columns) else []
        columns[depths[name]].append(name)
    below, line = max(map(len, columns), default=0), max(_LEAST, len(columns))
    alone = [name for name in graph.names if name not in linked]
    places = {
        name: (_MARGIN + x * _COLUMN, _MARGIN + y * _ROW)
        for x, column in enumerate(columns)
        for y, name in enumerate(column)
    } | {name: (_MARGIN + i % line * _BESIDE, _MARGIN + (below + i // line) * _ROW) for i, name in enumerate(alone)}
    right, bottom = (max((place[axis] for place in places.values()), default=0) for axis in (0, 1))
    return Layout(right + WIDE + _MARGIN, bottom + TALL + _MARGIN, places)


def svg(graph: Graph, operators: Mapping[str, str]) -> str:
    """Return the picture as a file of SVG, for light and dark pages; `operators` are shown below the pipelines' names."""
    layout = layout_of(graph)
    told = [f"{edge.downstream} reads {edge.table} of {edge.upstream}" for edge in graph.edges]
    size = f'width="{layout.width}" height="{layout.height}" viewBox="0 0 {layout.width} {layout.height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {size}>',
        f"<title>{escape(', '.join(told) or 'no pipeline reads another one')}</title>",
        f"<style>{_STYLE}</style>",
        *_edges(graph, layout),
        *(part for name in graph.names for part in _box(layout.places[name], name, operators[name])),
        "</svg>",
    ]
    return "\n".join(parts)


def _edges(graph: Graph, layout: Layout) -> Iterator[str]:
    """Yield a line for each pipeline and reader, with the tables' names."""

    def ends(edge: Edge) -> tuple[str, str]:
        return edge.upstream, edge.downstream

    for (upstream, downstream), edges in groupby(sorted(graph.edges, key=ends), ends):
        (x, y), (u, v) = layout.places[upstream], layout.places[downstream]
        begin, half, top, low = x + WIDE, (x + WIDE + u) // 2, y + TALL // 2, v + TALL // 2
        yield f'<path d="M{begin} {top}C{half} {top} {half} {low} {u} {low}"/>'
        tables = ", ".join(sorted({edge.table for edge in edges}))
        yield f'<text x="{half}" y="{(top + low) // 2 - 6}" text-anchor="middle">{escape(tables)}</text>'


def _box(place: tuple[int, int], name: str, operator: str) -> Iterator[str]:
    x, y = place
    shown = name if len(name) <= _SHOWN else f"{name[: _SHOWN - 1]}…"
    yield f'<rect x="{x}" y="{y}" width="{WIDE}" height="{TALL}" rx="8"/>'
    yield f'<text class="name" x="{x + 12}" y="{y + 20}">{escape(shown)}<title>{escape(name)}</title></text>'
    yield f'<text x="{x + 12}" y="{y + 37}">{escape(operator)}</text>'
