"""The metadata of a micro-batch's commit: the record that the stream, jobs, readers and metrics all use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sessionlake.config.store_engines import FILES, ROCKSDB, StoreEngine
from sessionlake.errors import PipelineStateError
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import Commit

WATERMARK = "watermark_us"
_NEEDED = (
    *("pipeline", "checkpoint_id", "batch_id", "commit_id", "state", "counts"),
    *("shards", "layout", "settings", "input", "started_us", "committed_us"),
)
"""Fields that the metadata of every batch's commit has. The other fields may be missing."""
_RENAMED = {"join.retention_time": "join.retention"}
"""Settings that earlier commits have under another name."""


def layout_of(shards: int, own: str, engine: StoreEngine) -> str:
    """Return all that the stores' content depends on, besides their keys: if it changes, they are restored. `own` is the operator's part.

    >>> layout_of(4, "1", "files"), layout_of(4, "1", "rocksdb")
    ('4/1', 'rocksdb/4/1')
    """
    return "/".join([*([] if engine == FILES else [engine]), str(shards), own])


def engine_in(layout: str) -> StoreEngine:
    """Return the engine that a layout names."""
    return ROCKSDB if layout.startswith(f"{ROCKSDB}/") else FILES


@dataclass(frozen=True)
class Settings:
    """The settings that a batch was computed under; JSON values."""

    rebuild: Mapping[str, Any]
    """Settings that bind the tables: another value means to build them again."""
    live: Mapping[str, Any]
    """Settings of classification, which may change from batch to batch."""
    types: Mapping[str, str]
    """Types of the source's columns, pinned by the first batch."""
    computed: Mapping[str, str] = field(default_factory=dict)
    """Types of the columns that are computed of them."""
    layouts: Sequence[Mapping[str, Any]] = ()
    """The layouts of states so far, this batch's last, as JSON values (`aggregates/layouts.py`); empty if there was only one."""
    unique_since: Mapping[str, int] = field(default_factory=dict)
    """By event input the first batch whose duplicates are removed (`unique_for`); inputs that do not ask for this are left out."""
    unique_secret: str = ""
    """The secret of the identities' hashes, in hexadecimal digits, drawn for the first batch; empty in warehouses that began without a secret."""
    shapes: Sequence[Mapping[str, Any]] = ()
    """The computed columns that batches have had, this batch's last, by their keys in the config, each from its batch `since` on;
    empty if they equal `rebuild`'s for all batches."""
    by_value: bool = False
    """Whether keys and ids have the texts of rule 465; commits of before it lack the field."""
    paths: bool = False
    """Whether a dot in a column's name means a field (rule 460). Earlier commits lack the field: there it is a part of the name."""
    graced: bool = False
    """Whether a config that writes no grace has the longest that its retention allows (rule 269). Earlier commits lack the field: there it has none."""


@dataclass(frozen=True)
class Places:
    """The executors of the shards, and the state of their stores."""

    executors: tuple[str, ...] = ()
    """As host/process."""
    at: tuple[int | None, ...] = ()
    """For each shard the executor on which it ran last, which holds its store, as an index into `executors`; None if it never ran."""
    restored: tuple[int, ...] = ()
    """Shards whose stores were restored in this batch."""
    causes: Mapping[str, int] = field(default_factory=dict)
    """How many stores were restored by cause."""

    def host_of(self, shard: int) -> str | None:
        """Return the host that a shard ran on last; None if that is not known."""
        at = self.at[shard] if shard < len(self.at) else None
        return self.executors[at].rpartition("/")[0] if at is not None and 0 <= at < len(self.executors) else None

    @property
    def hosts(self) -> list[str]:
        """The hosts that hold stores, in order."""
        return sorted({executor.rpartition("/")[0] for executor in self.executors})


@dataclass(frozen=True)
class BatchCommit:
    """A committed micro-batch, as the userMetadata of its commits on the changelog and the side tables has it."""

    pipeline: str
    checkpoint_id: str
    batch_id: int
    commit_id: str
    """The attempt that was committed."""
    state: Mapping[str, Any]
    """The operator's state after the batch; JSON values."""
    counts: Mapping[str, int]
    """The batch's counts, by the names of `schemas.COUNTS`. A count of zero may be missing."""
    shards: tuple[str | None, ...]
    """The commit_id of each shard's store; None if no batch has touched it."""
    layout: str
    """What the stores' content depends on, besides their keys (`layout_of`)."""
    settings: Settings
    input: str | None
    """Fingerprint of the positions that the batch read up to; None if it was not known."""
    started_us: int
    committed_us: int
    places: Places = Places()
    cursors: tuple[Mapping[str, Any], ...] = ()
    """Per shard a few JSON values of its operator's; empty if no shard has any."""
    driver: str | None = None
    """The host of the driver."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """The versions of further inputs that the batch read, by name (`BatchContext.pins`)."""
    keeps_replaced: bool = False
    """Whether `replaced_rows` has the rows that the batch replaced or deleted."""
    version: int = -1
    """The version of the changelog that the commit made; -1 before it is made."""

    @classmethod
    def of(cls, commit: Commit, table: str) -> "BatchCommit":
        """Return a commit's batch; PipelineStateError if its metadata is not as this package writes it."""
        metadata = commit.metadata
        missing = [name for name in _NEEDED if name not in metadata]
        if missing:
            raise PipelineStateError(
                f"table {table!r}: version {commit.version}, of batch {metadata.get('batch_id')}, lacks {missing[0]!r} in its metadata, "
                "so sessionlake did not write it; put a backup back, or rebuild the tables with `sessionlake rebuild` (docs/recovery.md)"
            )
        places, settings = metadata.get("places") or {}, metadata["settings"]
        return cls(
            **{name: metadata[name] for name in _NEEDED if name not in ("shards", "settings")},
            shards=tuple(metadata["shards"]),
            settings=Settings(
                {_RENAMED.get(name, name): value for name, value in settings["rebuild"].items()},
                settings["live"],
                settings["types"],
                settings.get("computed", {}),
                settings.get("layouts", ()),
                settings.get("unique_since", {}),
                settings.get("unique_secret", ""),
                settings.get("shapes", ()),
                settings.get("by_value", False),
                settings.get("paths", False),
                settings.get("graced", False),
            ),
            places=Places(
                tuple(places.get("executors", ())),
                tuple(places.get("at", ())),
                tuple(places.get("restored", ())),
                places.get("causes", {}),
            ),
            cursors=tuple(metadata.get("cursors", ())),
            driver=metadata.get("driver"),
            pins=metadata.get("pins", {}),
            keeps_replaced=metadata.get("keeps_replaced", False),
            version=commit.version,
        )

    @property
    def watermark_us(self) -> int | None:
        """The watermark after the batch; None before the first accepted event."""
        watermark = self.state.get(WATERMARK)
        return None if watermark is None else int(watermark)

    def metadata(self) -> dict[str, Any]:
        """Return the metadata for a commit, as JSON values."""
        settings, places = self.settings, self.places
        return {
            **{name: getattr(self, name) for name in _NEEDED if name not in ("shards", "settings")},
            "shards": list(self.shards),
            "settings": {
                "rebuild": settings.rebuild,
                "live": settings.live,
                "types": settings.types,
                **({"computed": settings.computed} if settings.computed else {}),
                **({"layouts": list(settings.layouts)} if settings.layouts else {}),
                **({"unique_since": settings.unique_since} if settings.unique_since else {}),
                **({"unique_secret": settings.unique_secret} if settings.unique_secret else {}),
                **({"shapes": list(settings.shapes)} if settings.shapes else {}),
                **({"by_value": True} if settings.by_value else {}),
                **({"paths": True} if settings.paths else {}),
                **({"graced": True} if settings.graced else {}),
            },
            "places": {
                "executors": list(places.executors),
                "at": list(places.at),
                "restored": list(places.restored),
                "causes": dict(places.causes),
            },
            **({"cursors": list(self.cursors)} if any(self.cursors) else {}),
            "driver": self.driver,
            **({"pins": dict(self.pins)} if self.pins else {}),
            **({"keeps_replaced": True} if self.keeps_replaced else {}),
        }

    def row(self, more: Iterable[str] = ()) -> dict[str, Any]:
        """Return the batch's row of the table batches (`schemas.batches`); times in microseconds."""
        return {
            "batch_id": self.batch_id,
            "commit_id": self.commit_id,
            "started_at": self.started_us,
            "committed_at": self.committed_us,
            "watermark": self.watermark_us,
            **{name: self.counts.get(name, 0) for name in (*schemas.COUNTS, *more)},
            "changelog_version": self.version,
        }
