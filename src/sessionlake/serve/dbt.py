"""The tables and views of pipelines as dbt's sources: the text of a `sources.yml`."""

import json
from collections.abc import Iterable, Iterator

from sessionlake.config.load import Config
from sessionlake.serve.described import Described, described
from sessionlake.warehouse.schemas import BATCHES


def dbt_sources(configs: Iterable[Config], schema: str | None = None) -> str:
    """Return the file: a source for each pipeline, called as the pipeline, with all of its tables and views.

    In `schema`, which may be `database.schema`, tables are called as `view_statements` calls them. Without it each pipeline
    has a schema of its name.
    """
    return "\n".join(["version: 2", "sources:", *(line for config in configs for line in _source(config, schema))])


def _source(config: Config, schema: str | None) -> Iterator[str]:
    name = config.pipeline.name
    *database, own = (schema or name).split(".", 1)
    yield f"  - name: {_text(name)}"
    yield f"    description: {_described(config.section.in_words())}"
    yield from (f"    database: {_text(one)}" for one in database)
    yield f"    schema: {_text(own)}"
    yield "    loader: sessionlake"
    yield "    tables:"
    for one in described(config):
        yield from _table(one, "" if schema is None else config.prefix)


def _table(one: Described, prefix: str) -> Iterator[str]:
    yield f"      - name: {_text(one.name)}"
    if prefix:
        yield f"        identifier: {_text(prefix + one.name)}"
    if one.comment:
        yield f"        description: {_described(one.comment)}"
    if one.name == BATCHES:
        # By this column `dbt source freshness` knows when the stream was last at work.
        yield "        config:"
        yield "          loaded_at_field: committed_at"
    yield "        columns:"
    for name, comment in one.columns.items():
        yield f"          - name: {_text(name)}"
        if comment:
            yield f"            description: {_described(comment)}"


def _described(text: str) -> str:
    """Return a description, which dbt reads as a template."""
    # A block `raw` would end at an `endraw` of the text.
    return _text(text.replace("{", "{{ '{' }}"))


def _text(text: str) -> str:
    """Return a text as YAML has it: a string of JSON is one of YAML."""
    return json.dumps(text, ensure_ascii=False)
