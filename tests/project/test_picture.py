"""The picture of a project's graph."""

from pathlib import Path
from xml.etree import ElementTree as ET

import hypothesis.strategies as st
from click.testing import CliRunner
from hypothesis import given

from sessionlake.cli import main
from sessionlake.config.graph import Edge, Graph
from sessionlake.project.picture import TALL, WIDE, layout_of, svg
from tests.project.project_support import PIPELINES, write_project
from tests.support import examples

SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph whose names are in an order in which each comes after those that it reads."""
    names = [f"p{i}" for i in range(draw(st.integers(1, 9)))]
    pairs = st.tuples(st.integers(0, len(names) - 1), st.integers(0, len(names) - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    edges = (
        []
        if len(names) == 1
        else draw(st.lists(st.tuples(pairs, st.sampled_from(["late_events", "a&b"])), max_size=12))
    )
    return Graph(
        tuple(names), tuple(Edge(names[low], table, names[high], "source.path") for (low, high), table in edges)
    )


@examples(100)
@given(graphs())
def test_boxes_lie_apart_and_right_of_all_that_they_read(graph: Graph) -> None:
    layout = layout_of(graph)
    assert {*layout.places} == {*graph.names}
    for name, (x, y) in layout.places.items():
        assert 0 <= x <= layout.width - WIDE
        assert 0 <= y <= layout.height - TALL
        for other, (u, v) in layout.places.items():
            assert name == other or abs(x - u) > WIDE or abs(y - v) > TALL
    for edge in graph.edges:
        assert layout.places[edge.upstream][0] + WIDE < layout.places[edge.downstream][0]


@examples(40)
@given(graphs())
def test_the_file_has_a_box_for_each_pipeline_and_a_line_for_each_pair(graph: Graph) -> None:
    root = ET.fromstring(svg(graph, dict.fromkeys(graph.names, "window")))  # noqa: S314 (a text of ours)
    assert [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"] == list(graph.names)
    assert len(list(root.iter(f"{SVG}rect"))) == len(graph.names)
    assert len(list(root.iter(f"{SVG}path"))) == len({(edge.upstream, edge.downstream) for edge in graph.edges})
    title = root.find(f"{SVG}title")
    assert title is not None
    assert all(f"{edge.downstream} reads {edge.table} of {edge.upstream}" in str(title.text) for edge in graph.edges)


def test_the_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["graph", str(write_project(tmp_path)), "--format", "svg"])
    assert done.exit_code == 0, done.output
    root = ET.fromstring(done.stdout)  # noqa: S314 (a text of ours)
    texts = {str(text.text) for text in root.iter(f"{SVG}text")}
    assert texts == {*PIPELINES, "session", "window", "table", "late_events"}
