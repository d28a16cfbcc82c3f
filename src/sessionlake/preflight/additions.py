"""An aggregate that a config adds, beside the tables: in how many results it is null, and how these are filled. Read from logs alone."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import duckdb

from sessionlake.aggregates import AggregateSpec
from sessionlake.aggregates.spec import hidden_columns
from sessionlake.config.load import Config
from sessionlake.errors import NotNeededError
from sessionlake.jobs.run import require_known
from sessionlake.sources.base import Source
from sessionlake.stream.accepted_commands import rebuild_command, refuses_source
from sessionlake.stream.changes import Change, added_told
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.input_log import BATCH_INPUTS
from sessionlake.stream.kind import Kind
from sessionlake.stream.layouts import next_layouts
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.shape import Shaping
from sessionlake.stream.whole import ALL
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.dialects import DAY_US
from sessionlake.warehouse.extents import Extent, Extents
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import TableScan
from sessionlake.warehouse.views import ARCHIVED_FROM


@dataclass(frozen=True)
class Made:
    """The operator of a config, made without Spark."""

    config: Config
    sources: Mapping[str, Source]
    kind: Kind
    pinned: Pinned

    def pinned_from_now(self) -> Pinned:
        """Return what is fixed once the aggregates of the config are taken."""
        section = self.config.section.model_copy(update={"aggregates": dict(self.pinned.texts)})
        before = self.config.model_copy(update={"section": section})
        layouts = next_layouts(
            self.pinned,
            self.kind,
            self.config.aggregates,
            lambda: type(self.kind).make(before, self.sources, self.pinned),
        )
        return replace(self.pinned, layouts=layouts)

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the source's columns that an aggregate reads; for an aggregate without names, all that the pipeline reads."""
        (aggregate,) = (one for one in self.kind.aggregates if one.name == name)
        every = self.kind.inputs[EVENTS].columns.inputs
        known = (*self.config.event.columns, *self.pinned.types, *every)
        spec = AggregateSpec.parse(name, self.config.aggregates[name], known)
        shaping = Shaping.of(self.config.event_at, self.config.event, (), aggregate.inputs, hidden_columns([spec]))
        return shaping.sources(aggregate.inputs) if aggregate.inputs else tuple(every)


@dataclass(frozen=True)
class Additions:
    """What the tables say about added aggregates; `path` is the config's file, None without a file."""

    config: Config
    last: BatchCommit
    lake: Lake
    extents: Extents
    made: Made | None
    path: str | None

    @property
    def _path(self) -> str:
        return "CONFIG" if self.path is None else shlex.quote(self.path)

    def told(self, found: Sequence[Change]) -> list[Change]:
        """Return changes; an added aggregate has the facts about it."""
        extent = self.extents.latest(self.lake.changelog)
        return [self._told(change, extent) if change.adds else change for change in found]

    def _told(self, change: Change, extent: Extent) -> Change:
        many = "the" if extent.rows is None else f"{'the' if extent.exact else 'at most'} {extent.rows:,}"
        facts: dict[str, Any] = {"results": extent.rows, "results_are_exact": extent.exact}
        lines: list[str] = []
        if extent.rows != 0:
            filled = self._filled(change.name.removeprefix("aggregates."), extent)
            lines = [filled.pop("told")]
            facts |= filled
        told = added_told(self.config, change.after, many, fills=facts.get("backfill") is not None)
        return replace(change, told=told, facts=facts, lines=tuple(lines))

    def _filled(self, name: str, extent: Extent) -> dict[str, Any]:
        """Return the columns that an aggregate reads, since which batch the archive has them, the command that fills it, and a line about it.

        The command is one that the job takes; if it takes none, the line names `rebuild`, which computes all results again.
        """
        try:
            require_known(self.config, "backfill")
        except NotNeededError as error:
            return {"told": self._rebuilt(str(error))}
        columns = None if self.made is None else self.made.columns(name)
        since = None if columns is None else self._archived_since(columns)
        facts = {"columns": None if columns is None else list(columns), "archived_since": since}
        if refuses_source(self.config, "") is not None:
            missing = self._unarchived()
            refusal = None if missing is None else refuses_source(self.config, missing)
            if refusal is not None:
                return {**facts, "backfill": None, "told": self._rebuilt(f"backfill: {refusal}")}
        if self.last.settings.live.get("archive") and columns is not None:
            words = " and ".join(columns)
            if since is None:
                return {**facts, "backfill": None, "told": f"the archive lacks {words}, so that it stays null in them"}
            return {**facts, **self._command(extent, f"the archive has {words} since batch {since}", archived=True)}
        return {**facts, **self._command(extent, "events are read again", archived=False)}

    def _rebuilt(self, refusal: str) -> str:
        """Return a line that says why `backfill` is refused, and names what is not."""
        command = rebuild_command(self.config).replace("CONFIG", self._path)
        why = re.split("[;:] (?:send|set|use|write) ", refusal)[0]
        return f"it stays null in them ({why}), unless all is computed again: {command}"

    def _unarchived(self) -> str | None:
        """Return in words which batch the archive lacks, as `backfill` asks for all results; None if it has all batches."""
        if not self.lake[schemas.EVENTS].exists():
            return "there is no archive"
        lacking = max((batch for batch, has in archived_batches(self.lake).items() if not has), default=None)
        return None if lacking is None else f"batch {lacking} was not archived"

    def _archived_since(self, columns: Sequence[str]) -> int | None:
        """Return the first batch from which on the archive has some columns of the source; None if it lacks them in all batches."""
        live = self.last.settings.live
        if not live.get("archive") or self.made is None:
            return None
        first = self.extents.first_batch(schemas.EVENTS)
        read = self.made.pinned_from_now().since(columns)
        found = [] if first is None else [max(first, read)]
        whole = self.extents.first_batch(schemas.SOURCE_ROWS) if live["archive"] == ALL else None
        if whole is not None and self.config.event.unique_us is None:
            found.append(whole)
        return next((batch for batch in sorted(found) if batch <= self.last.batch_id), None)

    def _command(self, extent: Extent, told: str, *, archived: bool) -> dict[str, Any]:
        if extent.first_us is None or extent.last_us is None:
            return {"backfill": None, "told": told}
        first, last = extent.first_us, extent.last_us
        trimmed = self.lake[schemas.EVENTS].app_version(ARCHIVED_FROM) if archived else None
        if trimmed is not None:
            # A session that reaches to before the archive's first event can't be computed from it.
            first = max(first, trimmed + min(self.config.retention_us, DAY_US) + DAY_US - 1)
        if first // DAY_US > last // DAY_US:
            return {"backfill": None, "told": f"{told}, but begins after them, so that it stays null in them"}
        days = (f"{datetime.fromtimestamp(us // DAY_US * 86_400, UTC):%Y-%m-%d}" for us in (first, last + DAY_US))
        command = "sessionlake backfill {} --from {} --to {}".format(self._path, *days)
        return {"backfill": command, "told": f"{told}: {command}"}


def archived_batches(lake: Lake) -> dict[int, bool]:
    """Say for each batch whether its events were archived."""
    archived: dict[int, bool] = {}
    after = -1
    if lake[BATCH_INPUTS].exists():
        with closing(duckdb.connect()) as database:
            saved = database.from_arrow(TableScan(lake[BATCH_INPUTS].open()))
            for batch, version, settings in saved.select("batch_id, changelog_version, settings").fetchall():
                archived[batch] = bool(json.loads(settings).get("archive"))
                after = max(after, version)
    return archived | {batch.batch_id: bool(batch.settings.live.get("archive")) for batch in batches_after(lake, after)}
