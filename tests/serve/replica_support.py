"""A pipeline's driver in a few lines: shard tasks as the engine runs them, and commits as files of Delta's log; no Spark."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sessionlake.config.load import Config, parse_config
from sessionlake.config.store_engines import FILES, StoreEngine
from sessionlake.engine.operator import BatchContext
from sessionlake.engine.shard import ShardTask
from sessionlake.local.rows import event_rows
from sessionlake.local.shards import LocalShards
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.watermark import advanced
from sessionlake.testing import SessionizerHarness
from sessionlake.warehouse.batch_commit import BatchCommit, Places, Settings
from sessionlake.warehouse.history import user_metadata

SHARDS, MINUTE = 2, 60_000_000
GAP, GRACE, RETENTION = 5 * MINUTE, 10 * MINUTE, 40 * MINUTE
SESSION = {"gap": "5 minutes", "grace": "10 minutes", "retention": "40 minutes"}
SPECS = {"total": "sum(price)", "last": "last(name)"}
ROW = ("session_key", "session_start", "session_end", "event_count", "revision", *SPECS)


def log_commit(
    root: Path,
    batch_id: int,
    commit_id: str,
    state: dict[str, Any],
    shards: Sequence[str | None],
    types: Mapping[str, Any],
    live: dict[str, Any],
    places: Places | None = None,
    times_us: tuple[int, int] = (0, 0),
    aggregates: Mapping[str, str] = SPECS,
    counts: Mapping[str, int] | None = None,
) -> None:
    """Commit a batch of pipeline "p", whose shards' stores are to be at these commits, to the log below a directory."""
    settings = Settings({"aggregates": dict(aggregates)}, live, {name: str(type_) for name, type_ in types.items()})
    of = BatchCommit(
        "p",
        "id",
        batch_id,
        commit_id,
        state,
        dict(counts or {}),
        tuple(shards),
        "",
        settings,
        None,
        *times_us,
        places or Places(),
    )
    info = {"commitInfo": {"userMetadata": user_metadata(of.metadata())}}
    log = root / f"lake/session_changelog/_delta_log/{batch_id:020d}.json"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(json.dumps(info, separators=(",", ":")) + "\n")


class Recorded:
    """An operator whose changes are kept, as the changelog's files keep them."""

    def __init__(self, operator: Any, changes: list[dict[str, Any]]) -> None:
        self.operator, self.changes, self.stats = operator, changes, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.operator, name)

    def apply(self, inputs: Any, store: Any, context: BatchContext) -> Any:
        result = self.operator.apply(inputs, store, context)
        self.changes += result.changes.to_pylist()
        self.stats.append(result.stats)
        return result


class Stream:
    """A pipeline of sessions; `sections` are of its config, beside what makes it one, `places` the hosts of its shards."""

    def __init__(
        self, root: Path, *, places: Sequence[str] = (), engine: StoreEngine = FILES, **sections: dict[str, Any]
    ) -> None:
        self.root, self.sections, self.engine = root, sections, engine
        self.places = Places(tuple(f"{host}/1" for host in places), tuple(range(len(places))))
        (root / "lake/session_changelog/_delta_log").mkdir(parents=True)
        with SessionizerHarness(SessionWindows(GAP, GRACE, RETENTION), SPECS) as harness:
            self.operator = harness._make_operator([{"key": "a", "time_us": 0, "price": 1, "name": "x"}])
        self.state: dict[str, Any] = {}
        self.batch_id, self.attempts = -1, 0
        self.expected: list[str | None] = [None] * SHARDS
        self.live: dict[tuple[str, Any], dict[str, Any]] = {}
        self.times_us = (0, 0)
        """When the next batches start and are committed."""
        self.counts: dict[str, int] = {}
        """What the next batches count."""

    @property
    def config(self) -> Config:
        return parse_config(
            {
                "pipeline": {"name": "p", "warehouse": "lake", "store": "store", "shards": SHARDS},
                "source": {"kind": "files", "path": "events", "format": "json"},
                "event": {"key": "key", "time": "time_us", "time_unit": "us"},
                "aggregates": SPECS,
                **self.sections,
                "session": {**SESSION, **self.sections.get("session", {})},
            },
            self.root,
        )

    def attempt(self, rows: list[tuple[str, int]]) -> tuple[str, list[dict[str, Any]], dict[str, int], set[int]]:
        """Run the shard tasks of the next batch; nothing is committed by it."""
        self.attempts += 1
        commit_id = f"c{self.attempts}"
        context = BatchContext(self.batch_id + 1, commit_id, dict(self.state))
        events = [{"key": key, "time_us": us, "price": us % 7, "name": f"n{us % 5}"} for key, us in rows]
        bounds = self.operator.bounds(context)
        split = list(
            split_events(self.operator.spec, bounds, 0, event_rows(self.operator.spec.columns, list(enumerate(events))))
        )
        shards: LocalShards[Any] = LocalShards(SHARDS, lambda *_: None)
        inputs = shards._inputs(self.operator, split, {})
        changes: list[dict[str, Any]] = []
        operator: Any = Recorded(self.operator, changes)
        task = ShardTask(
            operator, context, (), str(self.root / "store/p"), tuple(self.expected), store_engine=self.engine
        )
        for shard, kinds in sorted(inputs.items()):
            list(task.run_shard(shard, kinds))
        touched = {s for s in inputs if (self.root / f"store/p/{s}.pending/{commit_id}.arrow").exists()}
        stats: dict[str, int] = {}
        for told in operator.stats:
            stats["max_time"] = (
                max(stats.get("max_time", -(1 << 60)), told["max_time"])
                if "max_time" in told
                else stats.get("max_time", -(1 << 60))
            )
        return commit_id, changes, stats, touched

    def commit(self, attempted: tuple[str, list[dict[str, Any]], dict[str, int], set[int]]) -> None:
        commit_id, changes, stats, touched = attempted
        self.batch_id += 1
        self.state = advanced(self.state, stats)
        for shard in touched:
            self.expected[shard] = commit_id
        for row in changes:
            name = (row["session_key"], row["session_start"])
            self.live.pop(name, None)
            if row["op"] == "upsert":
                self.live[name] = row
        types, live = self.operator.spec.columns.types, {"grace_us": GRACE, "retention_us": RETENTION}
        log_commit(
            self.root,
            self.batch_id,
            commit_id,
            self.state,
            self.expected,
            types,
            live,
            self.places,
            self.times_us,
            counts=self.counts,
        )

    def run(self, rows: list[tuple[str, int]]) -> None:
        self.commit(self.attempt(rows))

    def shown(self) -> list[dict[str, Any]]:
        """The sessions of the changelog that an event within retention can still meet (docs/rules.md, rule 7)."""
        watermark = self.state.get("watermark_us")
        rows = [] if watermark is None else list(self.live.values())
        warm = [row for row in rows if micros(row["session_end"]) + GAP >= watermark - RETENTION]
        return sorted(
            ({name: row[name] for name in ROW} for row in warm),
            key=lambda r: (r["session_key"].encode(), r["session_start"]),
        )


def micros(time: Any) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
