"""Aggregates and SQL of a config with other errors."""

from collections.abc import Iterator, Mapping
from typing import Any

from sessionlake.aggregates import AggregateSpec
from sessionlake.columnar.spark_sql import parse
from sessionlake.config.problems import Gathered, Problem


def text_problems(raw: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with the texts of aggregates, `where` and computed columns in a config's content, as far as these are texts."""
    gathered = Gathered()
    for name, text in _texts(raw.get("aggregates")):
        with gathered.one():
            AggregateSpec.parse(name, text)
    for at, event in _events(raw):
        given = [
            ("where", event.get("where")),
            *((f"columns.{name}", text) for name, text in _texts(event.get("columns"))),
        ]
        for name, sql in given:
            if isinstance(sql, str):
                with gathered.one():
                    parse(f"{at}.{name}", sql)
    return gathered.problems


def _events(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the sections of events: the pipeline's, and an operator's sides."""
    sides = ((f"{at}.{name}.", side) for at, section in _sections(raw) for name, side in _sections(section))
    for at, section in (("", raw), *sides):
        event = section.get("event")
        if isinstance(event, Mapping):
            yield f"{at}event", event


def _sections(section: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield from ((name, inner) for name, inner in section.items() if isinstance(inner, Mapping))


def _texts(section: Any) -> Iterator[tuple[str, str]]:
    if isinstance(section, Mapping):
        yield from ((name, text) for name, text in section.items() if isinstance(text, str))
