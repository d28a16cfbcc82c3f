"""Which datasets each job reads and writes, named as OpenLineage's naming rules ask."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from sessionlake import schemas
from sessionlake.config.load import Config

_SOURCE = "source"
_BASIS = "the events again"
_RULE = "tables of the rule"
_SCHEMES = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_NO_SLASH = ("s3", "gs")


@dataclass(frozen=True)
class Dataset:
    """A dataset by OpenLineage's names, and the rows read or written of it, where they are counted."""

    namespace: str
    name: str
    rows: int | None = None


Rows = Callable[[Mapping[str, int]], int | None]


@dataclass(frozen=True)
class _Job:
    """A job's tables; of those whose rows it counts, how."""

    reads: Mapping[str, Rows]
    writes: Mapping[str, Rows]


def _unknown(_: Mapping[str, int]) -> int | None:
    return None


def _count(*names: str) -> Rows:
    return lambda counts: sum(counts[name] for name in names) if all(name in counts for name in names) else None


def _all(*tables: str) -> dict[str, Rows]:
    return dict.fromkeys(tables, _unknown)


_LOG, _LATE, _DEAD, _ASKED = schemas.CHANGELOG, schemas.LATE_EVENTS, schemas.DEAD_LETTERS, schemas.CORRECTIONS
_EVERYTHING = _all(_LOG, schemas.SESSIONS, _LATE, _DEAD, _ASKED, schemas.EVENTS)
_JOBS: Mapping[str, _Job] = {
    "sessionize": _Job(
        {_SOURCE: _count("input"), _ASKED: _count("corrections")},
        {
            _LOG: _count("upserts", "deletes", "emitted"),
            _LATE: _count("late"),
            _DEAD: _count("dead"),
            schemas.EVENTS: _unknown,
        },
    ),
    "reprocess_late": _Job(_all(_LATE), {_ASKED: _count("corrections"), _DEAD: _count("expired")}),
    "redeem": _Job(_all(_DEAD), {_ASKED: _count("redeemed")}),
    "expire": _Job(_all(_LOG, schemas.SESSIONS, _RULE), {_ASKED: _count("expired")}),
    "compact": _Job({_LOG: _count("rows_folded")}, {schemas.SESSIONS: _count("rows_rewritten")}),
    "backfill": _Job(_all(_BASIS, _LOG, schemas.SESSIONS, _LATE), {_ASKED: _count("corrections")}),
    "quality": _Job(_all(_LOG, schemas.SESSIONS, _LATE, schemas.BATCHES), {schemas.QUALITY_RESULTS: _count("checks")}),
    "forget": _Job(_EVERYTHING, _EVERYTHING),
}


def datasets(config: Config, job: str, counts: Mapping[str, int]) -> tuple[list[Dataset], list[Dataset]]:
    """Return the inputs and outputs of a job's run that counted so far what `counts` says."""
    declared = _JOBS[job]
    return (
        [d for name, rows in declared.reads.items() for d in _named(config, name, rows(counts))],
        [d for name, rows in declared.writes.items() for d in _named(config, name, rows(counts))],
    )


def _named(config: Config, name: str, rows: int | None) -> list[Dataset]:
    if name == schemas.EVENTS and not config.pipeline.archive:
        return []
    if name == _BASIS:
        # The archive, where it has all that is needed; of a topic nothing can be read again.
        again = [] if config.source.kind == "kafka" else _named(config, _SOURCE, rows)
        return _named(config, schemas.EVENTS, rows) + again
    if name == _RULE:
        return [located(path) for path in config.expire.tables.values()]
    if name != _SOURCE:
        return [located(f"{config.pipeline.warehouse}/{name}", rows)]
    source = config.source
    if source.kind == "kafka":
        server = (source.bootstrap_servers or "").split(",")[0].strip()
        return [Dataset(f"kafka://{server}", source.topic or "", rows)]
    return [located(source.path, rows)]


def located(uri: str, rows: int | None = None) -> Dataset:
    """Return the dataset at a path or URI: of s3://bucket/key the namespace s3://bucket and the name key."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        return Dataset("file", parts.path.rstrip("/"), rows)
    scheme = _SCHEMES.get(parts.scheme, parts.scheme)
    path = parts.path.strip("/") if scheme in _NO_SLASH else parts.path.rstrip("/")
    return Dataset(f"{scheme}://{parts.netloc}", path, rows)
