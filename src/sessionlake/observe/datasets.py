"""Which datasets each job reads and writes, named as OpenLineage's naming rules ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from sessionlake.config.load import Config
from sessionlake.config.source import SourceSection
from sessionlake.jobs.registry import BY_NAME, CHANGES, EVENTS_AGAIN, RULE_TABLES, SESSIONIZE, SNAPSHOT, SOURCE, Counted
from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import JOINS, changelog_of

_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_NO_SLASH = ("s3", "gs")


@dataclass(frozen=True)
class Dataset:
    """A dataset by OpenLineage's names, and the rows read or written of it, where they are counted."""

    namespace: str
    name: str
    rows: int | None = None


_STREAM_READS: Counted = {SOURCE: ("input",), schemas.CORRECTIONS: ("corrections",)}
_STREAM_WRITES: Counted = {
    CHANGES: ("upserts", "deletes", "emitted"),
    schemas.LATE_EVENTS: ("late",),
    schemas.DEAD_LETTERS: ("dead",),
    schemas.CORRECTION_OUTCOMES: ("corrections",),
    schemas.EVENTS: (),
    schemas.JOIN_MESSAGES: ("accepted",),
}


def datasets(config: Config, job: str, counts: Mapping[str, int]) -> tuple[list[Dataset], list[Dataset]]:
    """Return the inputs and outputs of a run, of the stream (`sessionize`) or of a job with a record, that counted so far what `counts` says."""
    if job == SESSIONIZE:
        reads, writes = _STREAM_READS, _STREAM_WRITES
    else:
        reads, writes = BY_NAME[job].reads, BY_NAME[job].writes
    return _all(config, reads, counts), _all(config, writes, counts)


def _all(config: Config, tables: Counted, counts: Mapping[str, int]) -> list[Dataset]:
    return [found for name, of in tables.items() for found in _named(config, name, _rows(of, counts))]


def _rows(of: tuple[str, ...], counts: Mapping[str, int]) -> int | None:
    """Return the sum of some counts; None where there are none, or they are not all known yet."""
    return sum(counts[name] for name in of) if of and all(name in counts for name in of) else None


def _named(config: Config, name: str, rows: int | None) -> list[Dataset]:
    if name == schemas.EVENTS and not config.pipeline.archive:
        return []
    if name == EVENTS_AGAIN:
        # The archive, where it has all that is needed; of a topic nothing can be read again.
        again = [] if config.topics else _named(config, SOURCE, rows)
        return _named(config, schemas.EVENTS, rows) + again
    if name == schemas.JOIN_MESSAGES and config.operator != JOINS.name:
        return []
    if name == RULE_TABLES:
        return [located(path) for path in config.expire.tables.values()]
    if name != SOURCE:
        of = changelog_of(config)
        table = {CHANGES: of.changes, SNAPSHOT: of.snapshot}.get(name, name)
        return [located(f"{config.pipeline.warehouse}/{table}", rows)]
    sources = [side.source for side in config.inputs.values()]
    # Of several nothing says how many rows are which one's.
    return [_source(source, rows if len(sources) == 1 else None) for source in sources]


def _source(source: SourceSection, rows: int | None) -> Dataset:
    if source.kind == "kafka":
        server = (source.bootstrap_servers or "").split(",")[0].strip()
        return Dataset(f"kafka://{server}", source.topic or "", rows)
    return located(source.path, rows)


def located(uri: str, rows: int | None = None) -> Dataset:
    """Return the dataset at a path or URI: of s3://bucket/key the namespace s3://bucket and the name key."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return Dataset("file", parts.path.rstrip("/"), rows)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = parts.path.strip("/") if scheme in _NO_SLASH else parts.path.rstrip("/")
    return Dataset(f"{scheme}://{parts.netloc}", path, rows)
