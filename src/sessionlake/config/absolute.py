"""Absolute paths of a config: a relative path begins at the config's directory."""

from pathlib import Path
from typing import Any

from sessionlake.config.config import Config
from sessionlake.config.lookups import LookupSection
from sessionlake.config.names import EVENT_INPUT, EVENTS, SOURCE_ROWS
from sessionlake.config.paths import normal_path, resolved
from sessionlake.config.read_upstream import looked_up_table
from sessionlake.config.secrets import with_absolute_files
from sessionlake.config.sections import PipelineSection
from sessionlake.config.source import SinkSection, SourceSection, with_absolute_secrets
from sessionlake.errors import ConfigError


def with_absolute_paths(config: Config, directory: Path) -> Config:
    """Return the config with absolute paths; ConfigError if two paths name the same place and must not."""
    store = config.pipeline.store
    pipeline = config.pipeline.model_copy(
        update={
            "warehouse": resolved(config.pipeline.warehouse, directory),
            "store": store if store.startswith("$") else resolved(store, directory),
            "code": config.pipeline.code and str((directory / config.pipeline.code).resolve()),
        }
    )
    tables = {name: resolved(path, directory) for name, path in config.expire.tables.items()}
    expire = config.expire.model_copy(update={"tables": tables})
    sections: dict[str, Any] = {
        "pipeline": pipeline,
        "expire": expire,
        **_absolute_sources(config, pipeline, directory),
        "looked_up": _looked_up(config, directory),
    }
    if config.sink.targets:
        sections["sink"] = _absolute_sinks(config, pipeline, directory)
    if config.metrics.textfile:
        sections["metrics"] = config.metrics.model_copy(
            update={"textfile": resolved(config.metrics.textfile, directory)}
        )
    tls = {
        name: resolved(path, directory)
        for name in ("tls_certificate", "tls_key")
        if (path := getattr(config.serve, name))
    }
    sections["serve"] = config.serve.model_copy(update=tls)
    if config.lineage.path:
        sections["lineage"] = config.lineage.model_copy(update={"path": resolved(config.lineage.path, directory)})
    return config.model_copy(update={**sections, "directory": str(directory)})


def _absolute_sources(config: Config, pipeline: PipelineSection, directory: Path) -> dict[str, Any]:
    """Return the sections that hold sources, with absolute paths."""
    sources = {name: _absolute(side.source, directory) for name, side in config.inputs.items()}
    for name, source in sources.items():
        if (upstream := config.upstream.get(source.AT)) is not None:
            if normal_path(upstream.warehouse) == normal_path(pipeline.warehouse):
                raise ConfigError(f"{source.AT}.of: {source.of!r} is this pipeline itself; name another one")
            sources[name] = source.model_copy(update={"path": upstream.path})
    for source in sources.values():
        kept = [normal_path(f"{pipeline.warehouse}/{name}") for name in (EVENTS, SOURCE_ROWS)]
        if pipeline.archive and normal_path(source.path or "") in kept:
            raise ConfigError(
                f"pipeline.archive: {source.path!r} is both the source and the place of the archive; move the source, or remove pipeline.archive"
            )
    lookups = {name: [_absolute_lookup(one, directory) for one in side.lookup] for name, side in config.inputs.items()}
    if EVENT_INPUT in sources:
        return {"source": sources[EVENT_INPUT], "lookup": lookups[EVENT_INPUT]}
    return {"section": config.section.reading(sources, lookups)}


def _absolute_sinks(config: Config, pipeline: PipelineSection, directory: Path) -> SinkSection:
    """Return the sinks with absolute paths; ConfigError if a sink's table lies among the pipeline's own tables."""
    kafka, delta, postgres = config.sink.kafka, config.sink.delta, config.sink.postgres
    if delta is not None:
        delta = delta.model_copy(update={"path": resolved(delta.path, directory)})
        path, warehouse = (f"{normal_path(place)}/" for place in (delta.path, pipeline.warehouse))
        if path.startswith(warehouse) or warehouse.startswith(path):
            raise ConfigError(
                f"sink.delta.path: {delta.path!r} is a place of the pipeline's own tables, {pipeline.warehouse!r}; write a path outside of it"
            )
    if postgres is not None:
        postgres = postgres.model_copy(update={"url": with_absolute_files(postgres.url, directory)})
    return SinkSection(
        kafka=kafka and with_absolute_secrets(kafka, directory),
        delta=delta,
        postgres=postgres,
        python=config.sink.python,
    )


def _absolute_lookup(section: LookupSection, directory: Path) -> LookupSection:
    return section if section.path is None else section.model_copy(update={"path": resolved(section.path, directory)})


def _looked_up(config: Config, directory: Path) -> dict[str, Any]:
    """Return the [table] pipelines that lookups read, by the lookups' names."""
    named = ((side.lookup_at, section) for side in config.inputs.values() for section in side.lookup)
    return {section.name: looked_up_table(at, section, directory) for at, section in named if section.table is not None}


def _absolute(source: SourceSection, directory: Path) -> SourceSection:
    named = {name: getattr(source, name) for name in ("path", "avro_schema")}
    paths = {name: resolved(path, directory) for name, path in named.items() if path}
    return with_absolute_secrets(source.model_copy(update=paths), directory)
