"""Which datasets each job reads and writes, named as OpenLineage's naming rules ask."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from sessionlake.config.load import Config
from sessionlake.config.source import PostgresSink, SourceSection
from sessionlake.jobs.registry import (
    BY_NAME,
    CHANGES,
    EVENTS_AGAIN,
    RULE_TABLES,
    SINK,
    SNAPSHOT,
    SOURCE,
    STATE_CHANGES,
    STATE_SNAPSHOT,
    STREAM_RUN,
    Counted,
)
from sessionlake.sources.lookups.tables import changelog_of_table
from sessionlake.stream.kinds import kind_of
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import changelog_of

_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_NO_SLASH = ("s3", "gs")


@dataclass(frozen=True)
class Dataset:
    """A dataset by OpenLineage's names, and the rows read or written of it, if they are counted."""

    namespace: str
    name: str
    rows: int | None = None


_STREAM_READS: Counted = {SOURCE: ("input",), schemas.CORRECTIONS: ("corrections",)}
_STREAM_WRITES: Counted = {
    CHANGES: ("upserts", "deletes", "emitted"),
    STATE_CHANGES: (),
    schemas.LATE_EVENTS: ("late",),
    schemas.DEAD_LETTERS: ("dead",),
    schemas.CORRECTION_OUTCOMES: ("corrections",),
    schemas.EVENTS: (),
    schemas.SOURCE_ROWS: (),
    schemas.JOIN_MESSAGES: ("accepted",),
}
_STATES = (schemas.JOIN_MESSAGES,)
"""Tables from which some operators restore state (`Changelog.state`): another operator's pipeline has none."""


def datasets(config: Config, job: str, counts: Mapping[str, int]) -> tuple[list[Dataset], list[Dataset]]:
    """Return inputs and outputs of a run of the stream (`run`) or of a job; `counts` are its counts so far."""
    if job == STREAM_RUN:
        reads, writes = _STREAM_READS, _STREAM_WRITES
    else:
        reads, writes = BY_NAME[job].reads, BY_NAME[job].writes
    return _all(config, reads, counts), _all(config, writes, counts)


def _all(config: Config, tables: Counted, counts: Mapping[str, int]) -> list[Dataset]:
    return [found for name, of in tables.items() for found in _named(config, name, _rows(of, counts))]


def _rows(of: tuple[str, ...], counts: Mapping[str, int]) -> int | None:
    """Return the sum of some counts; None if there are none, or they are not all known yet."""
    return sum(counts[name] for name in of) if of and all(name in counts for name in of) else None


def _named(config: Config, name: str, rows: int | None) -> list[Dataset]:
    if name == EVENTS_AGAIN:
        # The archive, if it has all that is needed, or the source, if it can be read again.
        replayed = all(side.source.entry.can_replay for side in config.inputs.values())
        again = _named(config, SOURCE, rows) if replayed else []
        return _named(config, schemas.EVENTS, rows) + again
    if name == RULE_TABLES:
        return [located(path) for path in config.expire.tables.values()]
    if name == SINK:
        return list(_sinks(config))
    if name == SOURCE:
        sources = [side.source for side in config.inputs.values()]
        # Of several nothing says how many rows are which one's.
        read = [place for source in sources for place in _source(source)]
        if len(read) == 1:
            read = [replace(read[0], rows=rows)]
        return read + [dataset for side in config.inputs.values() for dataset in _looked_up(side)]
    return [located(f"{config.pipeline.warehouse}/{table}", rows) for table in _tables(config, name)]


def _tables(config: Config, name: str) -> list[str]:
    """Return the pipeline's tables of a role, or the named table; none if the pipeline has none."""
    of = changelog_of(config)
    if name in (STATE_CHANGES, STATE_SNAPSHOT):
        states = [each for each in kind_of(config).changelogs_in(config) if each != of]
        return [each.changes if name == STATE_CHANGES else each.snapshot for each in states]
    if name == schemas.EVENTS and not config.pipeline.archive:
        return []
    if name == schemas.SOURCE_ROWS and config.pipeline.archive != "all":
        return []
    if name in _STATES and name not in of.state:
        return []
    return [{CHANGES: of.changes, SNAPSHOT: of.snapshot}.get(name, name)]


def _looked_up(side: Config) -> Iterator[Dataset]:
    for section in side.lookup:
        upstream = side.looked_up.get(section.name)
        if upstream is not None:
            yield located(f"{upstream.warehouse}/{changelog_of_table(upstream).changes}")
        elif section.path is not None:
            yield located(section.path)


def _source(source: SourceSection) -> list[Dataset]:
    if source.entry.has_topic:
        return [_topic(source.bootstrap_servers or "", name) for name in source.topic_names]
    return [located(source.path)]


def _sinks(config: Config) -> Iterator[Dataset]:
    if config.sink.kafka is not None:
        yield _topic(config.sink.kafka.bootstrap_servers, config.sink.kafka.topic)
        if config.sink.kafka.errors is not None:
            yield _topic(config.sink.kafka.bootstrap_servers, config.sink.kafka.errors)
    if config.sink.delta is not None:
        yield located(config.sink.delta.path)
    if config.sink.postgres is not None:
        yield _database(config.sink.postgres)


def _database(sink: PostgresSink) -> Dataset:
    """Return a PostgreSQL table's dataset; a URL that is wholly a secret is left out."""
    parts = urlsplit(sink.url)
    server = f"postgres://{parts.hostname}:{parts.port or 5432}" if parts.hostname else "postgres"
    table = sink.table if "." in sink.table else f"public.{sink.table}"
    return Dataset(server, ".".join(part for part in (parts.path.strip("/"), table) if part))


def _topic(servers: str, topic: str, rows: int | None = None) -> Dataset:
    return Dataset(f"kafka://{servers.split(',', maxsplit=1)[0].strip()}", topic, rows)


def located(uri: str, rows: int | None = None) -> Dataset:
    """Return the dataset at a path or URI: of s3://bucket/key the namespace s3://bucket and the name key."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return Dataset("file", parts.path.rstrip("/"), rows)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = parts.path.strip("/") if scheme in _NO_SLASH else parts.path.rstrip("/")
    return Dataset(f"{scheme}://{parts.netloc}", path, rows)
